from django.apps import AppConfig


class AliasesConfig(AppConfig):
    """Names that an account moves between routes; the one place where a model id becomes a route."""

    name = "aliases"

    def ready(self) -> None:
        from billing import alias_names  # these import models, which exist from here on

        from . import names

        alias_names.sources.append(names.of_account)
