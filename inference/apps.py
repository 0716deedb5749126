from django.apps import AppConfig

from gateway.hooks import worker_hooks


class InferenceConfig(AppConfig):
    """The inference endpoints: admission, dialects, streams and settlement."""

    name = "inference"

    def ready(self) -> None:
        from . import checkpointing  # these import models, which exist from here on
        from .upstream import client

        worker_hooks.start.append(checkpointing.start)
        worker_hooks.beat.append(checkpointing.beat)
        worker_hooks.drain.append(client.stop_all)
