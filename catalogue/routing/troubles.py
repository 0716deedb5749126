"""Reports to staff providers that refuse the gateway itself: its account is empty or locked, or its key is wrong.

Clients cannot cause or solve that. So staff see it on the admin's first page and in a metric, and get one mail an hour
for each provider as long as it lasts.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.db.models import F, Q
from django.utils import timezone

from gateway.observing.write_behind import WriteBehind
from gateway.pages.mail import send_in_background

from ..models import Provider, ProviderTrouble

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 30.0
LASTS = timedelta(hours=1)  # after the last refused request
TOLD_EVERY = timedelta(hours=1)
MESSAGE = """Provider {provider} {words}.

It refused a request at {time} UTC. Such requests fail with 503 `provider_error` and are not billed; clients are not
shown the reason. The provider, its status and its last failure:
{address}

You will get another mail in an hour if it still refuses requests then.
"""

refusals: Counter[str] = Counter()  # of this worker, by provider


def note(slug: str, words: str) -> None:
    """Notes a refusal; `words` continue a sentence that starts with the provider's name."""
    refusals[slug] += 1
    _seen.note(slug, ProviderTrouble(provider=slug, words=words, seen_at=timezone.now()))


def flush() -> None:
    """Writes the newest refusal of each provider to the database."""
    _seen.flush()


def current(now: datetime) -> dict[str, ProviderTrouble]:
    """Returns the troubles that have not ended, by the provider's slug."""
    return ProviderTrouble.objects.filter(seen_at__gt=now - LASTS).in_bulk()


def tell_staff() -> int:
    """Mails staff about each trouble that is new or still lasts an hour after the last mail; returns how many.

    Workers may run it at the same time: the one that updates `told_at` sends the mails.
    """
    now = timezone.now()
    is_due = Q(told_at=None) | Q(told_at__lte=now - TOLD_EVERY, seen_at__gt=F("told_at"))
    due = ProviderTrouble.objects.filter(is_due, seen_at__gt=now - LASTS)
    return sum(_tell(trouble, now) for trouble in due)


def _tell(trouble: ProviderTrouble, now: datetime) -> bool:
    mine = ProviderTrouble.objects.filter(pk=trouble.pk, told_at=trouble.told_at).update(told_at=now)
    if mine:
        logger.error("provider %s %s", trouble.provider, trouble.words)
        staff = get_user_model().objects.filter(is_staff=True, is_active=True).exclude(email="")
        for address in staff.values_list("email", flat=True):
            send_in_background(_mail(trouble, address))
    return bool(mine)


def _mail(trouble: ProviderTrouble, address: str) -> EmailMessage:
    provider = Provider.objects.filter(slug=trouble.provider).first()
    page = "/admin/" if provider is None else f"/admin/catalogue/provider/{provider.pk}/change/"
    body = MESSAGE.format(
        provider=trouble.provider,
        words=trouble.words,
        time=f"{trouble.seen_at:%Y-%m-%d %H:%M:%S}",
        address=f"{settings.PUBLIC_URL}{page}",
    )
    return EmailMessage(f"Provider {trouble.provider} refuses the gateway", body, to=[address])


def _write(seen: Mapping[str, ProviderTrouble]) -> None:
    ProviderTrouble.objects.bulk_create(
        [seen[slug] for slug in sorted(seen)],
        update_conflicts=True,
        unique_fields=["provider"],
        update_fields=["words", "seen_at"],
    )


_seen: WriteBehind[str, ProviderTrouble] = WriteBehind(_write)
