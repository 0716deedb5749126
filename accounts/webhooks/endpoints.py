"""Creates, changes, disables and deletes an account's webhooks, and asks for a test or a repetition."""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import gevent
from django.db import transaction
from django.utils import timezone

from gateway.db.pool import release
from gateway.encryption import encrypt, renewed
from gateway.errors import InvalidRequest, NotFound

from .. import audit
from ..actions import Action
from ..audit import Subject
from ..keys import require_not_suspended
from ..models import Webhook, WebhookDelivery
from . import delivery, events
from .addresses import AddressRefused, look_up, target_of

MOST_WEBHOOKS = 20  # of an account
MOST_PATTERNS = 50
SECRET_PREFIX = "whsec_"  # noqa: S105  # of Standard Webhooks
SECRET_BYTES = 32
LOOK_UP_SECONDS = 5.0


def checked_url(value: Any) -> str:
    """Checks a webhook's URL, and looks up its host. Raises InvalidRequest."""
    if not isinstance(value, str):
        raise InvalidRequest.of_field("url", "must be a string.")
    release("default")  # name servers may be slow
    try:
        with gevent.Timeout(LOOK_UP_SECONDS, TimeoutError()):
            look_up(target_of(value))
    except AddressRefused as error:
        raise InvalidRequest.of_field("url", str(error)) from None
    except TimeoutError:
        raise InvalidRequest.of_field("url", "has a host that cannot be found.") from None
    return value


def checked_events(value: Any) -> list[str]:
    """Checks the patterns of types that a webhook takes. Raises InvalidRequest."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_PATTERNS:
        raise InvalidRequest.of_field("events", f"must be an array of 1 to {MOST_PATTERNS} types or patterns.")
    for place, pattern in enumerate(value):
        if not isinstance(pattern, str) or not events.matches_any_type(pattern):
            raise InvalidRequest.of_field(
                f"events[{place}]", "must be a type of events, or a pattern of some, such as budget.* or *."
            )
    return list(dict.fromkeys(value))


def find(account_id: UUID, webhook_id: str | UUID) -> Webhook:
    """Returns a webhook of the account. Raises NotFound."""
    found = Webhook.objects.filter(account_id=account_id, pk=_uuid(webhook_id)).first()
    if found is None:
        raise NotFound("The account has no such webhook.")
    return found


def find_delivery(webhook: Webhook, delivery_id: str | UUID) -> WebhookDelivery:
    """Returns a delivery of the webhook. Raises NotFound."""
    found = webhook.deliveries.filter(pk=_uuid(delivery_id)).first()
    if found is None:
        raise NotFound("The webhook has no such delivery.")
    return found


def create(account_id: UUID, url: str, patterns: Sequence[str]) -> tuple[Webhook, str]:
    """Creates a webhook for a checked URL and checked patterns. Returns it with its secret.

    Raises InvalidRequest, AccountSuspended and AccountClosed.
    """
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    with transaction.atomic():
        require_not_suspended(account_id)
        if Webhook.objects.filter(account_id=account_id).count() >= MOST_WEBHOOKS:
            raise InvalidRequest(f"The account has {MOST_WEBHOOKS} webhooks, which is the most. Delete one first.")
        made = Webhook.objects.create(account_id=account_id, url=url, events=[*patterns], secret=encrypt(secret))
        audit.record(account_id, Action.WEBHOOK_CREATED, _subject(made), new=_described(made))
    return made, secret


def change(
    webhook: Webhook, *, url: str | None = None, patterns: Sequence[str] | None = None, disabled: bool | None = None
) -> Webhook:
    """Changes what is given, all of it checked, and returns the webhook. Raises NotFound."""
    with transaction.atomic():
        found = Webhook.objects.select_for_update().filter(pk=webhook.pk).first()
        if found is None:
            raise NotFound("The account has no such webhook.")
        old = _described(found)
        if url is not None:
            found.url = url
        if patterns is not None:
            found.events = [*patterns]
        if disabled is False:
            found.disabled_at, found.disabled_reason, found.failing_since = None, "", None
        found.save(update_fields=["url", "events", "disabled_at", "disabled_reason", "failing_since"])
        if disabled and delivery.disable(found, "", now := timezone.now()):
            found.disabled_at = now
        new = _described(found)
        changed = [name for name in new if new[name] != old[name]]
        if changed:
            of_old, of_new = ({name: each[name] for name in changed} for each in (old, new))
            audit.record(found.account_id, Action.WEBHOOK_CHANGED, _subject(found), old=of_old, new=of_new)
    return found


def delete(webhook: Webhook) -> bool:
    """Deletes a webhook with its deliveries; returns False if it was deleted already."""
    with transaction.atomic():
        found = Webhook.objects.select_for_update().filter(pk=webhook.pk).first()
        if found is None:
            return False
        audit.record(found.account_id, Action.WEBHOOK_DELETED, _subject(found), old=_described(found))
        found.delete()
    return True


def send_test(webhook: Webhook) -> WebhookDelivery:
    """Writes an event of the type `test` for this webhook. Raises InvalidRequest if it is disabled, and NotFound."""
    with transaction.atomic():
        return events.enqueue_for(_locked_enabled(webhook), Action.TEST)


def send_again(webhook: Webhook, found: WebhookDelivery) -> WebhookDelivery:
    """Makes a delivery due now, with all attempts before it.

    Raises InvalidRequest if the webhook is disabled, and NotFound.
    """
    with transaction.atomic():
        found = find_delivery(_locked_enabled(webhook), found.pk)
        found.next_attempt_at, found.failures, found.delivered_at = timezone.now(), 0, None
        found.save(update_fields=["next_attempt_at", "failures", "delivered_at"])
    return found


def renew_secrets() -> int:
    """Encrypts secrets anew that an earlier SECRET_KEY encrypted, so that it can go; returns how many."""
    count = 0
    for pk in Webhook.objects.values_list("pk", flat=True):
        with transaction.atomic():
            found = Webhook.objects.select_for_update().filter(pk=pk).first()
            secret = renewed(found.secret) if found is not None else None
            if found is not None and secret is not None:
                found.secret = secret
                found.save(update_fields=["secret"])
                count += 1
    return count


def _locked_enabled(webhook: Webhook) -> Webhook:
    """Returns the webhook with its row locked. Raises NotFound, and InvalidRequest if it is disabled."""
    found = Webhook.objects.select_for_update(no_key=True).filter(pk=webhook.pk).first()
    if found is None:
        raise NotFound("The account has no such webhook.")
    if found.disabled_at is not None:
        raise InvalidRequest("The webhook is disabled. Enable it first.")
    return found


def _subject(webhook: Webhook) -> Subject:
    return Subject("webhook", str(webhook.pk))


def _described(webhook: Webhook) -> dict[str, Any]:
    """Returns what the audit log keeps: not the path of the URL, which may contain a secret."""
    target = target_of(webhook.url)
    return {
        "host": target.host_header,
        "url_digest": _digest(webhook.url),
        "events": webhook.events,
        "disabled": webhook.disabled_at is not None,
    }


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _uuid(text: str | UUID) -> UUID:
    try:
        return text if isinstance(text, UUID) else UUID(text)
    except ValueError:
        raise NotFound("The account has no such webhook.") from None
