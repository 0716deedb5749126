from django.apps import AppConfig

from gateway.hooks import worker_hooks


class AccountsConfig(AppConfig):
    """Users, accounts, memberships and API keys."""

    name = "accounts"

    def ready(self) -> None:
        from . import keys  # models exist from here on

        worker_hooks.beat.append(keys.write_uses)
        worker_hooks.stop.append(keys.write_uses)
