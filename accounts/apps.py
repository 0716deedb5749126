from django.apps import AppConfig

from gateway.hooks import worker_hooks


class AccountsConfig(AppConfig):
    """Users, accounts, memberships and API keys."""

    name = "accounts"

    def ready(self) -> None:
        from . import authentication  # models exist from here on

        worker_hooks.beat.append(authentication.write_uses)
        worker_hooks.stop.append(authentication.write_uses)
