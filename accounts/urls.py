"""Routes the endpoints of webhooks."""

from django.urls import re_path

from .webhooks import api

WEBHOOK, DELIVERY = r"(?P<webhook_id>[^/]+)", r"(?P<delivery_id>[^/]+)"

urlpatterns = [
    re_path(r"^webhooks/?$", api.Webhooks.as_view()),
    re_path(rf"^webhooks/{WEBHOOK}/?$", api.OneWebhook.as_view()),
    re_path(rf"^webhooks/{WEBHOOK}/test/?$", api.WebhookTest.as_view()),
    re_path(rf"^webhooks/{WEBHOOK}/deliveries/?$", api.Deliveries.as_view()),
    re_path(rf"^webhooks/{WEBHOOK}/deliveries/{DELIVERY}/retry/?$", api.RetryDelivery.as_view()),
]
