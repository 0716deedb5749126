"""Sends what is due to webhooks, from the workers' beat and from `maintain`.

Each delivery is sent by the process that sets its `claimed_at`. If that process dies, another one sends it once the
claim is too old: a receiver may get an event twice, with the same `webhook-id`.
"""

import logging
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

import gevent
from django.db import Error, transaction
from django.db.models import Q
from django.utils import timezone
from gevent.pool import Pool

from gateway.db.pool import WORK_SECONDS, answering_within, release
from gateway.edge.rfc3339 import to_text
from gateway.encryption import CannotDecrypt, decrypt

from ..models import Webhook, WebhookDelivery
from . import posting
from .posting import Message, Outcome

logger = logging.getLogger(__name__)
EVERY_SECONDS = 1.0
SENDING_SECONDS = 30.0  # of `maintain`, whose next round sends the rest
MOST_AT_ONCE = 20  # of a process
MOST_AT_ONCE_OF_A_WEBHOOK = 2  # so that slow receivers do not hold up the others
MOST_AT_ONCE_OF_AN_ACCOUNT = 6
LOOKED_AT = 200
CLAIMED_FOR = timedelta(minutes=2)  # far longer than an attempt takes
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


class Sender:
    """Sends deliveries side by side, so that a slow receiver holds up only events of its own account."""

    def __init__(self) -> None:
        self._pool = Pool(MOST_AT_ONCE)
        self._of_webhooks: Counter[UUID] = Counter()
        self._of_accounts: Counter[UUID] = Counter()

    def begin(self, due_at: datetime | None = None) -> int:
        """Begins to send what is due, as far as there are free places, and returns how many deliveries it began."""
        claimed = self._claim(due_at or timezone.now())
        for each in claimed:
            self._of_webhooks[each.webhook_id] += 1
            self._of_accounts[each.webhook.account_id] += 1
            self._pool.spawn(self._send, each)
        return len(claimed)

    @property
    def is_busy(self) -> bool:
        """Tells whether deliveries are being sent."""
        return len(self._pool) > 0

    def wait(self, *, count: int | None = None) -> None:
        """Waits until `count` deliveries have ended, or all of them."""
        release("default")  # meanwhile others can use the connection to the database
        gevent.wait([*self._pool], count=count)

    def _claim(self, due_at: datetime) -> list[WebhookDelivery]:
        """Claims deliveries for the free places, and passes over webhooks and accounts that use all of theirs."""
        of_webhooks, of_accounts = Counter(self._of_webhooks), Counter(self._of_accounts)
        free, claimed, is_more = self._pool.free_count(), list[UUID](), True
        due = WebhookDelivery.objects.filter(_due(due_at), webhook__disabled_at=None).order_by("next_attempt_at")
        while is_more and len(claimed) < free:
            full = [pk for pk, count in of_webhooks.items() if count >= MOST_AT_ONCE_OF_A_WEBHOOK]
            full_accounts = [pk for pk, count in of_accounts.items() if count >= MOST_AT_ONCE_OF_AN_ACCOUNT]
            others = due.exclude(webhook__in=full).exclude(webhook__account__in=full_accounts)
            rows = list(others.values_list("pk", "webhook_id", "webhook__account_id")[:LOOKED_AT])
            is_more = len(rows) == LOOKED_AT
            for pk, webhook_id, account_id in rows:
                if (
                    len(claimed) < free
                    and of_webhooks[webhook_id] < MOST_AT_ONCE_OF_A_WEBHOOK
                    and of_accounts[account_id] < MOST_AT_ONCE_OF_AN_ACCOUNT
                    and WebhookDelivery.objects.filter(_due(due_at), pk=pk).update(claimed_at=timezone.now())
                ):
                    claimed.append(pk)
                    of_webhooks[webhook_id] += 1
                    of_accounts[account_id] += 1
        return list(WebhookDelivery.objects.filter(pk__in=claimed).select_related("webhook")) if claimed else []

    def _send(self, delivery: WebhookDelivery) -> None:
        try:
            outcome = _post(delivery)
            with answering_within(WORK_SECONDS):
                _note(delivery, outcome, timezone.now())
        except Error as error:  # it is sent again once the claim is too old
            logger.warning("the outcome of webhook delivery %s is not written: %s", delivery.pk, error)
        finally:
            self._of_webhooks -= Counter([delivery.webhook_id])  # keeps no zeros
            self._of_accounts -= Counter([delivery.webhook.account_id])
            release("default")


def send_due() -> int:
    """Sends what is due now, each delivery once, and begins none after SENDING_SECONDS; returns how many."""
    sender, now, end = Sender(), timezone.now(), time.monotonic() + SENDING_SECONDS
    sent = sender.begin(now)
    while sender.is_busy:
        sender.wait(count=1)
        if time.monotonic() < end:
            sent += sender.begin(now)
    return sent


def _due(now: datetime) -> Q:
    is_free = Q(claimed_at=None) | Q(claimed_at__lte=now - CLAIMED_FOR)
    return is_free & Q(next_attempt_at__lte=now)


def _post(delivery: WebhookDelivery) -> Outcome:
    webhook = delivery.webhook
    try:
        message = Message(webhook.url, decrypt(webhook.secret), delivery.event_id, delivery.body)
    except CannotDecrypt:
        return Outcome(None, "the secret cannot be read since SECRET_KEY has changed: create the webhook again")
    return posting.post(message, datetime.now(UTC))


def _note(delivery: WebhookDelivery, outcome: Outcome, now: datetime) -> None:
    """Writes down how an attempt ended, plans the next one, and disables a webhook that is gone."""
    with transaction.atomic():
        webhook = Webhook.objects.select_for_update(no_key=True).filter(pk=delivery.webhook_id).first()
        if webhook is None:  # it has been deleted meanwhile, with its deliveries
            return
        found = WebhookDelivery.objects.get(pk=delivery.pk)
        attempt = {"at": to_text(now), "status": outcome.status, "error": outcome.error}
        found.attempts = [*found.attempts, attempt][-MOST_ATTEMPTS_KEPT:]
        found.claimed_at = None
        if outcome.is_success:
            found.delivered_at, found.next_attempt_at = now, None
        else:
            found.failures += 1
            pause = PAUSES[found.failures - 1] if found.failures <= len(PAUSES) else None
            found.next_attempt_at = None if pause is None or webhook.disabled_at is not None else now + pause
        found.save(update_fields=["attempts", "claimed_at", "delivered_at", "next_attempt_at", "failures"])
        _note_of_webhook(webhook, outcome, now)


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
