"""Helps the commands that change a provider."""

from django.core.management.base import CommandError
from django.db import transaction

from catalogue import changes
from catalogue.models import Provider


def provider_from(slug: str) -> Provider:
    """Returns the provider with this slug. Raises CommandError."""
    try:
        return Provider.objects.get(slug=slug.strip().lower())
    except Provider.DoesNotExist:
        raise CommandError(f"There is no provider {slug!r}.") from None


def set_disabled_reason(provider: Provider, reason: str) -> None:
    """Disables the provider with a reason, or serves it again if the reason is empty."""
    with transaction.atomic():
        changes.bump()  # first: every writer of the catalogue locks its row
        Provider.objects.filter(pk=provider.pk).update(disabled_reason=reason)
