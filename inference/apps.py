from django.apps import AppConfig

from gateway.hooks import worker_hooks


class InferenceConfig(AppConfig):
    """The inference endpoints: admission, dialects, streams, settlement."""

    name = "inference"

    def ready(self) -> None:
        from .dialects import http  # imports models, which exist from here on

        worker_hooks.drain.append(http.stop_all)
