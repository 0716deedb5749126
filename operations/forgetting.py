"""Removes names and people of a closed account whose records need not be kept longer (docs/security.md#accounts).

The ledger and the records stay, with ids instead of names.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import UUID

from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import models, transaction
from django.db.models import Q
from django.utils import timezone

from accounts.members import locked_account
from accounts.models import Account, ApiKey, AuditEvent, Invitation, Membership, Suspension
from aliases.models import Alias, AliasEvent
from billing.models import Generation, LedgerEntry, Notice, RequestFailure

REASON_GONE = "forgotten"


class RecordsStillKept(ValueError):
    """The account is not closed, or its records must still be kept."""


def forget(account: Account) -> None:
    """Removes all names and people of an account. Raises RecordsStillKept.

    The people may be members of other accounts: `billing.people.forget` erases a single person everywhere.
    """
    with transaction.atomic():
        account = locked_account(account.pk)
        _require_to_be_over(account)
        _blank_history(account)
        for model in (Membership, Invitation, Alias, AliasEvent, RequestFailure, Notice):
            model._base_manager.filter(account=account).delete()
        AuditEvent.objects.filter(account=account).delete()  # after what is written when memberships end
        keys = list(ApiKey.objects.filter(account=account))
        for key in keys:
            key.name, key.created_by = str(key.pk), None
        ApiKey.objects.bulk_update(keys, ["name", "created_by"], batch_size=500)
        Suspension.objects.filter(account=account).update(reason=REASON_GONE)
        account.name = str(account.pk)
        account.save(update_fields=["name"])


def _require_to_be_over(account: Account) -> None:
    if account.closed_at is None:
        raise RecordsStillKept(f"{account.name} is not closed: run close_account first.")
    last = _last_booked(account)
    if last is None:
        return
    # By law the years count from the end of the year in which a record was written.
    last = last.astimezone(UTC)
    end = last.year + settings.RECORD_YEARS
    if timezone.now().astimezone(UTC).year <= end:
        raise RecordsStillKept(
            f"{account.name} has records of {last:%Y-%m-%d}, which are kept until the end of {end} (RECORD_YEARS)."
        )


def _last_booked(account: Account) -> datetime | None:
    """Returns when the last record or ledger entry was written."""
    record = Generation.objects.filter(account=account).order_by("-created_at", "-id").first()
    entry = LedgerEntry.objects.filter(account=account).order_by("-seq").first()
    return max((row.created_at for row in (record, entry) if row is not None), default=None)


def _blank_history(account: Account) -> None:
    """Removes names from the history of staff's actions. It still shows who changed which id, and when."""
    condition = _history_condition(Account, [account.pk])
    for model in (ApiKey, Membership, Invitation, Suspension, Alias):
        condition |= _history_condition(model, model._base_manager.filter(account=account).values_list("pk", flat=True))
    condition |= _history_condition(
        Alias, AliasEvent.objects.filter(account=account).values_list("alias_id", flat=True)
    )
    # Entries about deleted members and invitations can only be found by their text.
    for model, words in ((Membership, "in"), (Invitation, "to")):
        of_model = ContentType.objects.get_for_model(model)
        condition |= Q(content_type=of_model, object_repr__endswith=f" {words} {account.name}")
    LogEntry.objects.filter(condition).update(object_repr=models.F("object_id"), change_message="")


def _history_condition(model: type[models.Model], ids: Iterable[UUID | int]) -> Q:
    of_model = ContentType.objects.get_for_model(model)
    return Q(content_type=of_model, object_id__in=[str(each) for each in ids])
