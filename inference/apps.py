from django.apps import AppConfig


class InferenceConfig(AppConfig):
    """The inference endpoints: admission, dialects, streams, settlement."""

    name = "inference"
