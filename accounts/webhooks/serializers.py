"""Reads and writes the objects of the webhook endpoints (docs/webhooks.md)."""

from collections.abc import Collection
from typing import Any

from gateway.edge.rfc3339 import to_text
from gateway.errors import InvalidRequest

from ..models import Webhook, WebhookDelivery
from .endpoints import checked_events, checked_url

EVERYTHING = ["*"]


def new_webhook(body: dict[str, Any]) -> tuple[str, list[str]]:
    """Returns the checked URL and patterns of a body. Raises InvalidRequest."""
    require_known(body, {"url", "events"})
    if body.get("url") is None:
        raise InvalidRequest.of_field("url", "is required.")
    patterns = checked_events(EVERYTHING if body.get("events") is None else body["events"])
    return checked_url(body["url"]), patterns


def changes_of_webhook(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the checked arguments of `endpoints.change` that a body names. Raises InvalidRequest."""
    require_known(body, {"url", "events", "disabled"})
    changes: dict[str, Any] = {}
    disabled = body.get("disabled")
    if disabled is not None:
        if not isinstance(disabled, bool):
            raise InvalidRequest.of_field("disabled", "must be a boolean.")
        changes["disabled"] = disabled
    if body.get("events") is not None:
        changes["patterns"] = checked_events(body["events"])
    if body.get("url") is not None:
        changes["url"] = checked_url(body["url"])
    if not changes:
        raise InvalidRequest("Send a new `url`, `events` or `disabled`.")
    return changes


def require_known(body: dict[str, Any], known: Collection[str]) -> None:
    """Raises InvalidRequest for a field that an endpoint does not have."""
    for name in body:
        if name not in known:
            raise InvalidRequest.of_field(name, "is not a field of this endpoint.")


def webhook_object(webhook: Webhook) -> dict[str, Any]:
    """Writes the Webhook object."""
    return {
        "id": str(webhook.pk),
        "url": webhook.url,
        "events": webhook.events,
        "disabled": webhook.disabled_at is not None,
        "created_at": to_text(webhook.created_at),
    }


def delivery_object(delivery: WebhookDelivery) -> dict[str, Any]:
    """Writes the WebhookDelivery object."""
    return {
        "id": str(delivery.pk),
        "event_id": delivery.event_id,
        "type": delivery.type,
        "created_at": to_text(delivery.created_at),
        "attempts": delivery.attempts,
        "next_attempt_at": None if delivery.next_attempt_at is None else to_text(delivery.next_attempt_at),
        "delivered_at": None if delivery.delivered_at is None else to_text(delivery.delivered_at),
    }
