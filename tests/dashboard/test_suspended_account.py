"""The pages of a suspended account can be read, show that it is suspended, and change nothing in it."""

import pytest

from accounts import keys, suspensions
from accounts.models import Account, ApiKey
from tests.billing.records import open_for
from tests.dashboard.people import OWNER, client_of, joined, words
from tests.page_text import plain

pytestmark = pytest.mark.usefixtures("served")


@pytest.fixture
def acme(served: None) -> Account:
    account = open_for(name="Acme", credit="10")
    joined(account, OWNER, "owner")
    return account


def test_its_members_read_its_pages_and_change_nothing(acme: Account) -> None:
    key, _ = keys.issue(acme, name="laptop")
    suspensions.suspend(acme, "Abuse report 4711", by=None)
    owner = client_of(OWNER)
    for page in ("/", "/keys", "/members", "/usage", "/credit", "/aliases"):
        assert "Acme has been suspended since" in words(owner, f"{page}?account={acme.pk}")
    for address in ("/keys", f"/keys/{key.pk}/delete", "/members", "/notifications", "/playground/key"):
        reply = owner.post(address, {"account": str(acme.pk), "name": "more", "expiry": "90d"})
        assert (address, reply.status_code) == (address, 403)
        assert "This account is suspended: nothing in it can be changed." in plain(reply.text)
    assert list(ApiKey.objects.filter(account=acme, deleted_at=None)) == [key]


def test_a_person_of_a_suspended_account_still_has_their_other_accounts(acme: Account) -> None:
    other = open_for(name="Other", credit="10")
    joined(other, OWNER, "owner")
    suspensions.suspend(acme, "Abuse report 4711", by=None)
    reply = client_of(OWNER).post("/keys", {"account": str(other.pk), "name": "more", "expiry": "90d"})
    assert reply.status_code == 200
    assert ApiKey.objects.filter(account=other, name="more").exists()
