"""Sends what is due to webhooks, from the workers' beat and from `maintain`.

Each delivery is sent by the process that sets its `claimed_at`. If that process dies, another one sends it once the
claim is too old: a receiver may get an event twice, with the same `webhook-id`.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from gevent.pool import Pool

from gateway.db.pool import release
from gateway.edge.rfc3339 import to_text
from gateway.encryption import CannotDecrypt, decrypt

from ..models import Webhook, WebhookDelivery
from . import posting
from .posting import Message, Outcome

EVERY_SECONDS = 1.0
MOST_AT_ONCE = 20
MOST_AT_ONCE_OF_A_WEBHOOK = 2  # so that a slow receiver does not hold up the others
LOOKED_AT = 200
CLAIMED_FOR = timedelta(minutes=2)  # far longer than a batch takes
# The pauses that Standard Webhooks recommends, each after one more failure.
PAUSES = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=12),
)
FAILED_FOR = timedelta(days=5)  # nothing was delivered for this long: the webhook is disabled
KEPT_FOR = timedelta(days=30)
DROP_EVERY_SECONDS = 600.0
MOST_DROPPED = 1000
MOST_ATTEMPTS_KEPT = 20
GONE = 410
GONE_REASON = "Its address answered with status 410: it is gone for good."
FAILED_REASON = "Nothing could be delivered to it for 5 days."


def send_due() -> int:
    """Sends deliveries that are due, up to MOST_AT_ONCE; returns how many."""
    claimed = _claim(timezone.now())
    if not claimed:
        return 0
    # Receivers may be slow: meanwhile others can use the connection to the database.
    release("default")
    outcomes = Pool(MOST_AT_ONCE).map(_post, claimed)
    for delivery, outcome in zip(claimed, outcomes, strict=True):
        _note(delivery.pk, outcome, timezone.now())
    return len(claimed)


def _due(now: datetime) -> Q:
    is_free = Q(claimed_at=None) | Q(claimed_at__lte=now - CLAIMED_FOR)
    return is_free & Q(next_attempt_at__lte=now)


def _claim(now: datetime) -> list[WebhookDelivery]:
    due = WebhookDelivery.objects.filter(_due(now), webhook__disabled_at=None).order_by("next_attempt_at")
    claimed: list[UUID] = []
    of_webhook: Counter[UUID] = Counter()
    for pk, webhook_id in due.values_list("pk", "webhook_id")[:LOOKED_AT]:
        if len(claimed) == MOST_AT_ONCE:
            break
        if of_webhook[webhook_id] < MOST_AT_ONCE_OF_A_WEBHOOK:
            if WebhookDelivery.objects.filter(_due(now), pk=pk).update(claimed_at=now):
                claimed.append(pk)
            of_webhook[webhook_id] += 1
    return list(WebhookDelivery.objects.filter(pk__in=claimed).select_related("webhook")) if claimed else []


def _post(delivery: WebhookDelivery) -> Outcome:
    webhook = delivery.webhook
    try:
        message = Message(webhook.url, decrypt(webhook.secret), delivery.event_id, delivery.body)
    except CannotDecrypt:
        return Outcome(None, "the secret cannot be read since SECRET_KEY has changed: create the webhook again")
    return posting.post(message, datetime.now(UTC))


def _note(pk: UUID, outcome: Outcome, now: datetime) -> None:
    """Writes down how an attempt ended, plans the next one, and disables a webhook that is gone."""
    with transaction.atomic():
        found = WebhookDelivery.objects.select_for_update(of=("self",)).select_related("webhook").filter(pk=pk).first()
        if found is None:  # the webhook has been deleted meanwhile
            return
        attempt = {"at": to_text(now), "status": outcome.status, "error": outcome.error}
        found.attempts = [*found.attempts, attempt][-MOST_ATTEMPTS_KEPT:]
        found.claimed_at = None
        if outcome.is_success:
            found.delivered_at, found.next_attempt_at = now, None
        else:
            found.failures += 1
            pause = PAUSES[found.failures - 1] if found.failures <= len(PAUSES) else None
            found.next_attempt_at = None if pause is None else now + pause
        found.save(update_fields=["attempts", "claimed_at", "delivered_at", "next_attempt_at", "failures"])
        _note_of_webhook(found.webhook, outcome, now)


def _note_of_webhook(webhook: Webhook, outcome: Outcome, now: datetime) -> None:
    same = Webhook.objects.filter(pk=webhook.pk)
    if outcome.is_success:
        if webhook.failing_since is not None:
            same.update(failing_since=None)
    elif outcome.status == GONE:
        disable(webhook, GONE_REASON, now)
    elif webhook.failing_since is None:
        same.filter(failing_since=None).update(failing_since=now)
    elif webhook.failing_since <= now - FAILED_FOR:
        disable(webhook, FAILED_REASON, now)


def disable(webhook: Webhook, reason: str, now: datetime) -> bool:
    """Disables a webhook, unless it is already, and gives up what is waiting for it. Tells whether it did."""
    enabled = Webhook.objects.filter(pk=webhook.pk, disabled_at=None)
    if not enabled.update(disabled_at=now, disabled_reason=reason):
        return False
    WebhookDelivery.objects.filter(webhook=webhook, next_attempt_at__isnull=False).update(next_attempt_at=None)
    return True


def drop_before(moment: datetime) -> int:
    """Removes deliveries that ended and are older; returns how many."""
    return WebhookDelivery.objects.filter(next_attempt_at=None, created_at__lt=moment).delete()[0]


def drop_some() -> bool:
    """Removes some deliveries older than KEPT_FOR, as `maintain` removes all; tells whether there are more."""
    old = WebhookDelivery.objects.filter(next_attempt_at=None, created_at__lt=timezone.now() - KEPT_FOR)
    some = list(old.order_by("created_at").values_list("pk", flat=True)[:MOST_DROPPED])
    WebhookDelivery.objects.filter(pk__in=some).delete()
    return len(some) == MOST_DROPPED
