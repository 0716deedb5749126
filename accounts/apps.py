from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Who asks. Users, accounts, memberships and API keys."""

    name = "accounts"
