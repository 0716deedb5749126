from django.apps import AppConfig


class GatewayConfig(AppConfig):
    """The floor everyone stands on: settings, errors, money, ids, the edge and the workers."""

    name = "gateway"
