from django.apps import AppConfig
from django.db.models.signals import post_save, pre_save


class BillingConfig(AppConfig):
    """The prepaid ledger, and the records of what was served and billed."""

    name = "billing"

    def ready(self) -> None:
        from accounts.models import Account  # models exist from here on

        from .accounts import ensure_wallet, keep_currency

        post_save.connect(ensure_wallet, sender=Account, dispatch_uid="wallet-for-every-account")
        pre_save.connect(keep_currency, sender=Account, dispatch_uid="currency-fixed-by-first-entry")
