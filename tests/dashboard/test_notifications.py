"""On the page about mail people decide for themselves, and owners also on the account's thresholds."""

from decimal import Decimal

import pytest

from accounts.models import Account, User
from billing.ledger.balance_lines import amounts_of, set_amounts
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
    assert amounts_of(account.pk) == [Decimal("12.5")]
    assert ">\n12.50</textarea>" in owner.get("/notifications").text
    owner.post("/notifications", {"account": str(account.pk), "low_balance": ""})
    assert amounts_of(account.pk) == []
    assert wishes() == {OWNER: False, MEMBER: True}


def test_a_page_of_before_writes_what_was_changed_on_it_alone(account: Account) -> None:
    """A browser also sends what each field held when the page was shown."""
    owner, page = client_of(OWNER), {"account": str(account.pk), "initial-wants_notices": "True"}
    set_amounts(account.pk, [Decimal(25), Decimal(5)])
    owner.post("/notifications", page | {"initial-low_balance": "", "low_balance": ""})
    assert wishes()[OWNER] is False
    assert amounts_of(account.pk) == [25, 5]
    User.objects.update(wants_notices=True)
    owner.post(
        "/notifications", page | {"initial-low_balance": "25.00\r\n5.00", "low_balance": "", "wants_notices": "on"}
    )
    assert wishes()[OWNER] is True
    assert amounts_of(account.pk) == []


def test_a_member_opts_out_and_does_not_touch_the_threshold(account: Account) -> None:
    member = client_of(MEMBER)
    assert "Low balance of Acme" not in plain(member.get("/notifications").text)
    member.post("/notifications", {"account": str(account.pk), "low_balance": "5"})
    assert amounts_of(account.pk) == []
    assert wishes() == {OWNER: True, MEMBER: False}


@pytest.mark.parametrize("text", ["50\n 20.5\r\n10\n\n50", "10, 50, 20.5", "50,\n20.5, 10"])
def test_several_amounts_are_kept_once_each_and_shown_from_the_highest(account: Account, text: str) -> None:
    owner = client_of(OWNER)
    owner.post("/notifications", {"account": str(account.pk), "low_balance": text})
    assert amounts_of(account.pk) == [Decimal(50), Decimal("20.5"), Decimal(10)]
    assert Account.objects.get().low_balance == 50, "an older worker looks at the highest"
    assert "50.00\n20.50\n10.00" in owner.get("/notifications").text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("50\n-1", "-1: Ensure this value is greater than or equal to 0."),
        ("50\nmuch", "much: Enter a number."),
        ("12,50", "Use a point for cents. After a comma between two amounts, add a space."),
        ("1\n2\n3\n4\n5\n6", "Enter at most 5 amounts."),
    ],
)
def test_an_error_is_beside_the_field_names_the_amount_and_changes_nothing(
    account: Account, text: str, message: str
) -> None:
    set_amounts(account.pk, [Decimal(7)])
    response = client_of(OWNER).post("/notifications", {"account": str(account.pk), "low_balance": text})
    assert response.status_code == 422
    assert message in plain(response.text)
    assert response.context["form"].errors.keys() == {"low_balance"}
    assert amounts_of(account.pk) == [7]
    assert wishes()[OWNER] is True


@pytest.mark.parametrize("amount", ["-1", "0.001", "much", "1e30", "922337203.69", "9999999999999999.99"])
def test_an_invalid_amount_is_refused(account: Account, amount: str) -> None:
    response = client_of(OWNER).post("/notifications", {"account": str(account.pk), "low_balance": amount})
    assert response.status_code == 422
    assert wishes()[OWNER] is True
