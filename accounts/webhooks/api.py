"""Answers the webhook endpoints, for management keys (docs/webhooks.md)."""

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.edge import listing
from gateway.edge.control_view import ControlView

from ..keys import ManagementAuthentication, caller_of_request
from ..models import Webhook, WebhookDelivery
from . import endpoints
from .serializers import (
    changes_of_webhook,
    delivery_object,
    new_webhook,
    require_known,
    webhook_object,
)

Row = TypeVar("Row", Webhook, WebhookDelivery)


class WebhookView(ControlView):
    """Is the base of these endpoints."""

    authentication_classes = (ManagementAuthentication,)

    def find(self, request: Request, webhook_id: str) -> Webhook:
        return endpoints.find(caller_of_request(request).account_id, webhook_id)

    def require_empty(self, request: Request) -> None:
        """Refuses a body with fields; there need not be one."""
        if int(request.META.get("CONTENT_LENGTH") or 0):
            require_known(self.json_body(request), ())


class Webhooks(WebhookView):
    """Lists and creates webhooks."""

    doing = "listing or creating webhooks"

    def get(self, request: Request) -> Response:
        account_id = caller_of_request(request).account_id
        rows = Webhook.objects.filter(account_id=account_id)
        return _listed(request, rows, f"webhooks/{account_id.hex}", webhook_object)

    def post(self, request: Request) -> Response:
        url, patterns = new_webhook(self.json_body(request))
        made, secret = endpoints.create(caller_of_request(request).account_id, url, patterns)
        return Response({**webhook_object(made), "secret": secret}, status=201)


class OneWebhook(WebhookView):
    """Shows, changes and deletes a webhook."""

    doing = "reading or changing the webhook"

    def get(self, request: Request, webhook_id: str) -> Response:
        return Response(webhook_object(self.find(request, webhook_id)))

    def patch(self, request: Request, webhook_id: str) -> Response:
        found = self.find(request, webhook_id)
        return Response(webhook_object(endpoints.change(found, **changes_of_webhook(self.json_body(request)))))

    def delete(self, request: Request, webhook_id: str) -> Response:
        endpoints.delete(self.find(request, webhook_id))
        return Response(status=204)


class WebhookTest(WebhookView):
    """Sends an event of the type `test`."""

    doing = "sending a test to the webhook"

    def post(self, request: Request, webhook_id: str) -> Response:
        found = self.find(request, webhook_id)
        self.require_empty(request)
        return Response(delivery_object(endpoints.send_test(found)), status=202)


class Deliveries(WebhookView):
    """Lists what was sent to a webhook, newest first."""

    doing = "listing the webhook's deliveries"

    def get(self, request: Request, webhook_id: str) -> Response:
        found = self.find(request, webhook_id)
        return _listed(request, found.deliveries.all(), f"deliveries/{found.pk.hex}", delivery_object)


class RetryDelivery(WebhookView):
    """Sends an event again."""

    doing = "sending the event again"

    def post(self, request: Request, webhook_id: str, delivery_id: str) -> Response:
        found = self.find(request, webhook_id)
        delivery = endpoints.find_delivery(found, delivery_id)
        self.require_empty(request)
        return Response(delivery_object(endpoints.send_again(found, delivery)), status=202)


def _listed(request: Request, rows: "QuerySet[Row]", salt: str, written: Callable[[Row], dict[str, Any]]) -> Response:
    """Answers a page of rows, newest first: their ids grow with time."""
    query = listing.query_of(request)
    if (position := listing.position_of(query, salt)) is not None:
        rows = rows.filter(pk__lt=UUID(hex=position))
    found = list(rows.order_by("-pk")[: query["limit"] + 1])
    return listing.page(
        found, query, salt, position=lambda row: row.pk.hex, shown=lambda page: [written(row) for row in page]
    )
