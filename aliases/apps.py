from django.apps import AppConfig


class AliasesConfig(AppConfig):
    """Configures aliases, an account's own names for routes."""

    name = "aliases"

    def ready(self) -> None:
        from billing.usage import api_usage, request_failures  # models can be imported only now

        from .names import texts_of
        from .resolve import ids_of

        request_failures.ids_of_aliases = ids_of
        api_usage.names_of_aliases = texts_of
