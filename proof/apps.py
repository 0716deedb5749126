from django.apps import AppConfig

from gateway.management.checks import more_checks
from gateway.server.hooks import MetricReading, Periodic, worker_hooks


class ProofConfig(AppConfig):
    """Configures the transparency log of the ledger."""

    name = "proof"

    def ready(self) -> None:
        from billing.usage import statement  # models can be imported only now

        from . import lag, log_key, policy, receipts, sequencer

        if log_key.current() is not None:  # a bad key or policy stops the start
            more_checks["log"] = lag.check
        policy.current()
        statement.log_checkpoint = receipts.published_note
        worker_hooks.beat += [
            Periodic(sequencer.EVERY_SECONDS, sequencer.advance, spread=True),
            Periodic(sequencer.EVERY_SECONDS, lag.current.look, spread=True),
        ]
        worker_hooks.readings.append(
            MetricReading(
                "gateway_log_lag_seconds",
                "The age of the oldest ledger entry that the published checkpoint of the log does not have.",
                lag.current.seconds,
                how="livemostrecent",
            )
        )
