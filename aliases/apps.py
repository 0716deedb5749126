from django.apps import AppConfig


class AliasesConfig(AppConfig):
    """Names an account can move, and the one place where a model id becomes a route."""

    name = "aliases"
