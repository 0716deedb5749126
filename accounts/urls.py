"""Routes the endpoints on an account's members, its audit log and its webhooks."""

from django.urls import re_path

from . import people_api
from .webhooks import api as webhooks_api

WEBHOOK, DELIVERY = r"(?P<webhook_id>[^/]+)", r"(?P<delivery_id>[^/]+)"

urlpatterns = [
    re_path(r"^members/?$", people_api.Members.as_view()),
    re_path(r"^members/(?P<person_id>[^/]+)/?$", people_api.OneMember.as_view()),
    re_path(r"^invitations/?$", people_api.Invitations.as_view()),
    re_path(r"^audit/?$", people_api.Audit.as_view()),
    re_path(r"^webhooks/?$", webhooks_api.Webhooks.as_view()),
    re_path(rf"^webhooks/{WEBHOOK}/?$", webhooks_api.OneWebhook.as_view()),
    re_path(rf"^webhooks/{WEBHOOK}/test/?$", webhooks_api.WebhookTest.as_view()),
    re_path(rf"^webhooks/{WEBHOOK}/deliveries/?$", webhooks_api.Deliveries.as_view()),
    re_path(rf"^webhooks/{WEBHOOK}/deliveries/{DELIVERY}/retry/?$", webhooks_api.RetryDelivery.as_view()),
]
