from django.apps import AppConfig


class AliasesConfig(AppConfig):
    """Accounts' own names for routes."""

    name = "aliases"

    def ready(self) -> None:
        from billing.usage import request_failures  # models exist from here on

        from .resolve import ids_of

        request_failures.ids_of_aliases = ids_of
