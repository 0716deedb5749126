"""`forget_account` leaves only ids and consistent books of a closed account whose records are old enough."""

import io
from datetime import UTC, datetime

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.management import CommandError, call_command
from django.utils import timezone

from accounts import closing, invitations, keys
from accounts.models import Account, ApiKey, Invitation, Membership, User
from aliases.models import Alias, AliasEvent
from billing import notices
from billing.models import Generation, LedgerEntry, Notice, RequestFailure
from gateway.errors import NotFound
from tests.billing.records import fail, open_for, serve
from tests.dashboard.people import GUEST, MEMBER, OWNER, joined
from tests.factories import mismatches
from tests.text_columns import places_of

pytestmark = pytest.mark.django_db
NAME, KEY, ALIAS = "Ada Lovelace Computing", "ada-laptop", "adas-fast"


@pytest.fixture
def closed() -> Account:
    """Makes an account with everything that an account may leave, closed today."""
    account = open_for(name=NAME)
    owner, staff = joined(account, OWNER, "owner").user, User.objects.create_superuser("boss@staff.example")
    key, _token = keys.issue(account, name=KEY, created_by=owner)
    Alias.objects.create(account=account, name=ALIAS, created_at=key.created_at, updated_at=key.created_at)
    alias = Alias.objects.get()
    AliasEvent.objects.create(
        account=account, alias_id=alias.pk, event_type="created", new_name=ALIAS, by=owner, created_at=key.created_at
    )
    serve(account, key=key, requested_alias=f"alias/{ALIAS}", alias_id=alias.pk)
    fail(account, NotFound(f"The alias alias/{ALIAS} leads nowhere.", param="model"))
    invitation = invitations.invite(account.pk, GUEST, "member", by=owner)
    former = joined(account, MEMBER)
    for row in (account, key, alias, invitation, former):
        LogEntry.objects.log_actions(staff.pk, [row], CHANGE, f"Spoke with {NAME}.", single_object=True)
    former.delete()
    closing.close(account, f"{NAME} moved away", by=None)
    notices.send_due()
    return account


def forget(account: Account) -> str:
    out = io.StringIO()
    call_command("forget_account", account.name, stdout=out)
    return out.getvalue()


def pass_years(monkeypatch: pytest.MonkeyPatch, year: int, month: int, day: int) -> None:
    monkeypatch.setattr(timezone, "now", lambda: datetime(year, month, day, 12, tzinfo=UTC))


def test_ids_and_the_books_are_left_once_the_years_are_over(closed: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    books = [list(model.objects.values()) for model in (Generation, LedgerEntry)]
    this_year = timezone.now().year
    pass_years(monkeypatch, this_year + 10, 12, 31)
    with pytest.raises(CommandError, match=f"kept until the end of {this_year + 10}"):
        forget(closed)
    pass_years(monkeypatch, this_year + 11, 1, 1)
    assert forget(closed) == f"The account {closed.pk} has been forgotten: its ledger and records stay.\n"
    assert places_of(NAME) | places_of(KEY) | places_of(GUEST) == set()
    assert places_of(ALIAS) == {"billing.generation.requested_alias"}
    assert places_of(OWNER) == places_of(MEMBER) == {"accounts.user.email"}
    for model in (Membership, Invitation, Alias, AliasEvent, RequestFailure, Notice):
        assert not model._base_manager.filter(account=closed).exists()
    assert [(key.name, key.created_by) for key in ApiKey.objects.all()] == [
        (str(key.pk), None) for key in ApiKey.objects.all()
    ]
    assert [list(model.objects.values()) for model in (Generation, LedgerEntry)] == books
    assert mismatches(closed) == []
    assert Account.objects.named(str(closed.pk)).name == str(closed.pk)
    assert {entry.object_repr == entry.object_id for entry in LogEntry.objects.all()} == {True}


def test_another_account_is_left_alone(closed: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    other = open_for(name="Bertha")
    joined(other, MEMBER, "owner")
    fail(other)
    pass_years(monkeypatch, timezone.now().year + 11, 1, 1)
    forget(closed)
    assert Account.objects.get(pk=other.pk).name == "Bertha"
    assert Membership.objects.filter(account=other).count() == 1
    assert RequestFailure.objects.filter(account=other).count() == 1
    assert ApiKey.objects.get(account=other).name == "test"


def test_an_account_that_is_open_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    account = open_for(name="Acme")
    pass_years(monkeypatch, timezone.now().year + 11, 1, 1)
    with pytest.raises(CommandError, match="Acme is not closed"):
        forget(account)


def test_an_account_without_books_is_forgotten_as_soon_as_it_is_closed() -> None:
    account = open_for(name="Never", credit=None)
    closing.close(account, "never used", by=None)
    forget(account)
    assert places_of("Never") == set()
