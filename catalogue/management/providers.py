"""What the commands on providers share."""

from django.core.management.base import CommandError
from django.db import transaction

from catalogue import changes
from catalogue.models import Provider


def provider_from(slug: str) -> Provider:
    """Returns the provider of that slug. Raises CommandError."""
    try:
        return Provider.objects.get(slug=slug.strip().lower())
    except Provider.DoesNotExist:
        raise CommandError(f"There is no provider {slug!r}.") from None


def set_disabled_reason(provider: Provider, reason: str) -> None:
    """Takes the provider out of service for a reason, or serves it again if that is empty."""
    with transaction.atomic():
        changes.bump()  # first: its row is what writers of the catalogue queue for
        Provider.objects.filter(pk=provider.pk).update(disabled_reason=reason)
