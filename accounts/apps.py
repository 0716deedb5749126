from django.apps import AppConfig

from gateway.hooks import worker_hooks


class AccountsConfig(AppConfig):
    """Users, accounts, memberships and API keys."""

    name = "accounts"

    def ready(self) -> None:
        from . import last_use  # models exist from here on

        worker_hooks.beat.append(last_use.flush)
        worker_hooks.stop.append(last_use.flush)
