"""The gateway's worker without its beat: what it does each second whether anybody asks or not is not a request's."""

from typing import Any

from gateway.worker import GatewayWorker


class QuietWorker(GatewayWorker):
    """`-k bench.worker.QuietWorker`."""

    def run(self) -> Any:
        """Apps have registered their hooks by now."""
        from gateway.hooks import worker_hooks  # noqa: PLC0415  # only now: see gateway.worker

        worker_hooks.beat.clear()
        return super().run()
