from django.apps import AppConfig

from gateway.server.hooks import Periodic, worker_hooks


class ProofConfig(AppConfig):
    """Configures the transparency log of the ledger."""

    name = "proof"

    def ready(self) -> None:
        from billing.usage import statement  # models can be imported only now

        from . import log_key, policy, receipts, sequencer

        log_key.current()  # a bad key or policy stops the start
        policy.current()
        statement.log_checkpoint = receipts.published_note
        worker_hooks.beat.append(Periodic(sequencer.EVERY_SECONDS, sequencer.advance, spread=True))
