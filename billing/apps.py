from django.apps import AppConfig
from django.db.models.signals import post_save, pre_save

from gateway.observing.request_events import failure_observers
from gateway.server.hooks import MetricReading, Periodic, worker_hooks


class BillingConfig(AppConfig):
    """Configures the app that keeps the prepaid ledger and the records of served requests."""

    name = "billing"

    def ready(self) -> None:
        from django.conf import settings

        from accounts.models import Account, ApiKey  # models can only be imported now

        from . import notices, policies, statements_ready
        from .accounts import ensure_wallet, refuse_new_currency
        from .ledger import idempotent_requests, overdraft, spool
        from .ledger.settlement import finish_or_spool, settled_accounts, start_settlers
        from .maintenance import Recovery
        from .usage import replica, request_failures, rollups

        recovery = Recovery()
        worker_hooks.start += [recovery.start, start_settlers]
        worker_hooks.beat += [
            Periodic(0, recovery.work),
            Periodic(rollups.EVERY_SECONDS, rollups.WorkerRollups(settled_accounts).advance),
            Periodic(overdraft.EVERY_SECONDS, overdraft.raise_alerts, spread=True),
            Periodic(notices.EVERY_SECONDS, notices.send_due, spread=True),
            Periodic(notices.CROSSED_EVERY_SECONDS, notices.send_crossed, spread=True),
            Periodic(statements_ready.EVERY_SECONDS, statements_ready.tell, spread=True),
            Periodic(0, request_failures.failure_log.flush),
            Periodic(request_failures.DROP_EVERY_SECONDS, request_failures.drop_some, spread=True),
            Periodic(idempotent_requests.DROP_EVERY_SECONDS, idempotent_requests.drop_some, spread=True),
        ]
        if replica.ALIAS in settings.DATABASES:
            worker_hooks.beat.append(Periodic(0, replica.note_position))
        worker_hooks.readings.append(
            MetricReading(
                "gateway_spool_files",
                "Files in this machine's spool: waiting for the database, claimed by a process, or set aside (poison).",
                spool.lengths,
                how="livemostrecent",
                label="state",
            )
        )
        # It runs first, because the hooks after it may wait for the database for so long that the worker is killed.
        worker_hooks.stop.insert(0, finish_or_spool)
        worker_hooks.stop.append(request_failures.failure_log.flush)
        failure_observers.append(request_failures.failure_log.note)
        post_save.connect(ensure_wallet, sender=Account, dispatch_uid="wallet-for-every-account")
        post_save.connect(policies.give_default, sender=ApiKey, dispatch_uid="default-policy-of-new-keys")
        pre_save.connect(refuse_new_currency, sender=Account, dispatch_uid="currency-fixed-by-first-entry")
