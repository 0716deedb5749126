from django.apps import AppConfig

from gateway.server.hooks import MetricReading, worker_hooks


class InferenceConfig(AppConfig):
    """Registers the hooks and metrics of the inference endpoints."""

    name = "inference"

    def ready(self) -> None:
        from gateway.fastpath import connections
        from gateway.fastpath import http_client as client

        from . import checkpointing, idempotency  # imported here because they import models, which are not ready before

        worker_hooks.start.append(checkpointing.start)
        worker_hooks.beat += [checkpointing.beat, idempotency.beat]
        worker_hooks.stop.append(idempotency.write_ends)
        worker_hooks.drain.append(client.stop_all)
        worker_hooks.readings += [
            MetricReading("gateway_open_streams", "Streams that have begun but not ended.", checkpointing.open_streams),
            MetricReading("gateway_checkpoints", "Checkpoints of open streams.", checkpointing.written_checkpoints),
            MetricReading("gateway_open_upstream_calls", "Calls to upstreams that have not ended.", client.open_calls),
            MetricReading(
                "gateway_upstream_unexpected_bytes",
                "Connections of providers on which unrequested bytes arrived.",
                lambda: connections.unexpected_bytes,
                how="counter",
                label="provider",
            ),
            MetricReading(
                "gateway_upstream_broken_ends",
                "Connections that providers closed or reset during an answer.",
                lambda: connections.broken_ends,
                how="counter",
                label="provider",
            ),
        ]
