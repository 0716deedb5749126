"""Tells webhooks when a provider goes down, by its published status, and when it is up again."""

from django.db import transaction
from django.utils import timezone

from accounts.actions import Action
from accounts.webhooks import events

from .models import Provider, ProviderOutage, Status
from .routing import health

LOOK_EVERY_SECONDS = 10.0


def look() -> None:
    """Compares the providers that are down with those that webhooks were told of, and writes what has changed.

    The row of an outage is written and removed together with the events, by one worker.
    """
    now = timezone.now()
    counts = health.counts_by_provider(now)
    overrides = Provider.objects.values_list("slug", "status_override")
    down = {slug for slug, override in overrides if health.status_of(override, counts.get(slug))[0] == Status.DOWN}
    told = set(ProviderOutage.objects.values_list("provider", flat=True))
    for slug in sorted(down - told):
        with transaction.atomic():
            if ProviderOutage.objects.get_or_create(provider=slug, defaults={"began_at": now})[1]:
                events.enqueue_for_all(Action.PROVIDER_DOWN, {"provider": slug})
    for slug in sorted(told - down):
        with transaction.atomic():
            if ProviderOutage.objects.filter(provider=slug).delete()[0]:
                events.enqueue_for_all(Action.PROVIDER_UP, {"provider": slug})
