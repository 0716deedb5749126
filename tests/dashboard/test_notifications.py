"""On the page about mail people decide for themselves, and owners also on the account's threshold."""

from decimal import Decimal

import pytest

from accounts.models import Account, User
from tests.billing.records import open_for
from tests.dashboard.people import MEMBER, OWNER, client_of, joined
from tests.page_text import plain

pytestmark = pytest.mark.django_db


@pytest.fixture
def account() -> Account:
    account = open_for(name="Acme")
    joined(account, OWNER, "owner")
    joined(account, MEMBER)
    return account


def wishes() -> dict[str, bool]:
    return dict(User.objects.values_list("email", "wants_notices"))


def test_an_owner_sets_the_threshold_and_opts_out(account: Account) -> None:
    owner = client_of(OWNER)
    fields = {"account": str(account.pk), "wants_notices": "on", "low_balance": "12.5"}
    assert "Notifications saved." in owner.post("/notifications", fields, follow=True).text
    assert Account.objects.get().low_balance == Decimal("12.5")
    assert 'value="12.50"' in owner.get("/notifications").text
    owner.post("/notifications", {"account": str(account.pk), "low_balance": ""})
    assert Account.objects.get().low_balance is None
    assert wishes() == {OWNER: False, MEMBER: True}


def test_a_page_of_before_writes_what_was_changed_on_it_alone(account: Account) -> None:
    """A browser also sends what each field held when the page was shown."""
    owner, page = client_of(OWNER), {"account": str(account.pk), "initial-wants_notices": "True"}
    Account.objects.update(low_balance=Decimal(25))
    owner.post("/notifications", page | {"initial-low_balance": "", "low_balance": ""})
    assert wishes()[OWNER] is False
    assert Account.objects.get().low_balance == 25
    User.objects.update(wants_notices=True)
    owner.post("/notifications", page | {"initial-low_balance": "25", "low_balance": "", "wants_notices": "on"})
    assert wishes()[OWNER] is True
    assert Account.objects.get().low_balance is None


def test_a_member_opts_out_and_does_not_touch_the_threshold(account: Account) -> None:
    member = client_of(MEMBER)
    assert "Low balance of Acme" not in plain(member.get("/notifications").text)
    member.post("/notifications", {"account": str(account.pk), "low_balance": "5"})
    assert Account.objects.get().low_balance is None
    assert wishes() == {OWNER: True, MEMBER: False}


@pytest.mark.parametrize("amount", ["-1", "0.001", "much", "1e30", "922337203.69", "9999999999999999.99"])
def test_an_invalid_amount_is_refused(account: Account, amount: str) -> None:
    response = client_of(OWNER).post("/notifications", {"account": str(account.pk), "low_balance": amount})
    assert response.status_code == 422
    assert wishes()[OWNER] is True
