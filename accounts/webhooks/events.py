"""Writes what happens to an account for each of its webhooks, in the transaction of the event (docs/webhooks.md).

The bodies name things by their ids only, so that they can be looked up by whoever may see them.
"""

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from gateway.edge.rfc3339 import to_text
from gateway.ids import uuid7

from ..actions import WEBHOOKS, Action
from ..models import Webhook, WebhookDelivery

EVENT_PREFIX = "evt_"
Data = Mapping[str, Any]


def covers(pattern: str, kind: str) -> bool:
    """Tells whether a pattern such as `budget.*` covers a type of events. `*` stands for any characters."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), kind) is not None


def matches_any_type(pattern: str) -> bool:
    """Tells whether there is a type that a pattern covers."""
    return any(covers(pattern, action) for action in WEBHOOKS)


def enqueue(account_id: UUID, action: Action, data: Data, *, once: str | None = None) -> None:
    """Writes an event for each enabled webhook of the account that takes it.

    With `once`, a text that identifies the event, it is written at most once for each webhook.
    """
    with transaction.atomic(savepoint=False):
        enabled = Webhook.objects.filter(account_id=account_id, disabled_at=None)
        found = _locked(enabled).values_list("pk", "events")
        _write([pk for pk, patterns in found if _takes(patterns, action)], account_id, action, data, once)


def enqueue_for_all(action: Action, data: Data) -> None:
    """Writes an event that concerns every account for each enabled webhook that takes it."""
    by_account: dict[UUID, list[UUID]] = {}
    with transaction.atomic(savepoint=False):
        found = _locked(Webhook.objects.filter(disabled_at=None)).values_list("pk", "account_id", "events")
        for pk, account_id, patterns in found:
            if _takes(patterns, action):
                by_account.setdefault(account_id, []).append(pk)
        for account_id, webhooks in by_account.items():
            _write(webhooks, account_id, action, data, None)


def enqueue_for(webhook: Webhook, action: Action) -> WebhookDelivery:
    """Writes an event without data for one webhook, whatever it takes."""
    return _write([webhook.pk], webhook.account_id, action, {}, None)[0]


def accounts_that_take(action: Action, *, since: datetime | None = None) -> set[UUID]:
    """Returns the accounts with an enabled webhook that takes an action and, with `since`, was created before it."""
    found = Webhook.objects.filter(disabled_at=None)
    if since is not None:
        found = found.filter(created_at__lt=since)
    return {
        account_id for account_id, patterns in found.values_list("account_id", "events") if _takes(patterns, action)
    }


def _locked(webhooks: QuerySet[Webhook]) -> QuerySet[Webhook]:
    """Locks webhooks. Otherwise a change would fail if one of them were deleted before the change is committed."""
    return webhooks.select_for_update(no_key=True).order_by("pk")


def _takes(patterns: Iterable[str], action: Action) -> bool:
    return any(covers(pattern, action) for pattern in patterns)


def _write(
    webhooks: Sequence[UUID], account_id: UUID, action: Action, data: Data, once: str | None
) -> list[WebhookDelivery]:
    if not webhooks:
        return []
    now = timezone.now()
    event = uuid7() if once is None else uuid.uuid5(account_id, f"{action.value} {once}")
    content = {"type": action.value, "timestamp": to_text(now), "data": {"account_id": str(account_id), **data}}
    body = json.dumps(content, separators=(",", ":"))
    new = [
        WebhookDelivery(
            webhook_id=pk,
            event_id=EVENT_PREFIX + event.hex,
            type=action.value,
            body=body,
            created_at=now,
            next_attempt_at=now,
        )
        for pk in webhooks
    ]
    return WebhookDelivery.objects.bulk_create(new, ignore_conflicts=once is not None)
