"""An account's page in the admin shows what the customer pays, uses and fails at."""

import re
from datetime import timedelta
from decimal import Decimal
from html import unescape

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import Account, User
from billing.ledger import credits
from billing.models import RequestFailure
from billing.policies import Holder, set_policy
from gateway.errors import ProviderError
from tests.billing.records import MEMBER, fail, key_of, open_for, serve
from tests.dashboard.usage import seen, used

pytestmark = pytest.mark.django_db


@pytest.fixture
def account() -> Account:
    return open_for(MEMBER)


def text_of(client: Client, account: Account) -> str:
    return client.get(f"/admin/accounts/account/{account.pk}/change/").text


def table(text: str, caption: str) -> list[str]:
    """Returns the rows of a table, as text."""
    body = text.partition(f"<caption>{caption}</caption>")[2].partition("</table>")[0].partition("<tbody>")[2]
    return [seen(row) for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)]


def balance(text: str) -> str:
    return seen(re.findall(r'<p class="balance">(.*?)</p>', text, re.DOTALL)[0])


def test_the_balance_has_its_currency_and_how_long_it_lasts(staff: Client) -> None:
    unused, spent, empty = open_for(name="Unused"), open_for(name="Used", credit="0.01"), open_for(credit=None)
    used(spent)
    assert balance(text_of(staff, unused)) == "100.00 EUR nothing used in the last 30 days"
    assert balance(text_of(staff, spent)) == "0.00 EUR 0.0008 EUR a day, runs out in about 10 days"
    assert balance(text_of(staff, empty)) == "0.00 EUR no credit"
    assert 'title="0.00916"' in text_of(staff, spent)
    credits.grant(spent.pk, Decimal(1000), "invoice 1")  # lasts for years, which nobody can foresee
    assert balance(text_of(staff, spent)) == "1,000.00 EUR 0.0008 EUR a day"


def test_usage_is_shown_by_month_model_and_key(staff: Client, account: Account) -> None:
    assert table(text_of(staff, account), "Top models of 30 days") == ["None."]
    serve(account)
    serve(account)
    serve(account, model="demo/dear", cost=1, prompt_cost=1, completion_cost=0)
    text = text_of(staff, account)
    this_month, last_month = table(text, "Usage by month")
    assert this_month.endswith(" 3 3,600 1.0014")
    assert last_month.endswith(" 0 0 0.00")
    assert table(text, "Top models of 30 days") == ["sim/demo/dear 1 1.0000", "sim/demo/echo 2 0.0014"]
    assert table(text, "Top keys of 30 days") == [f"{key_of(account)} 3 1.0014"]


def test_failures_of_a_day_are_counted_by_code_and_lead_to_themselves(staff: Client, account: Account) -> None:
    for error in (None, None, ProviderError("It broke.")):
        failure = fail(account, error)
    RequestFailure.objects.filter(pk=failure.pk).update(repeated=5)
    old = fail(account)
    RequestFailure.objects.filter(pk=old.pk).update(created_at=old.created_at - timedelta(days=2))
    text = text_of(staff, account)
    assert table(text, "Failures of the last 24 hours") == [f"503 {failure.code} 6", "404 not_found 2"]
    link = unescape(re.findall(rf'href="([^"]+code={failure.code})"', text)[0])
    assert [row.pk for row in staff.get(link).context["cl"].result_list] == [failure.pk]


def test_credit_and_policies_are_listed(staff: Client, account: Account) -> None:
    credits.correct(account.pk, Decimal(-100), "invoice 8")
    set_policy(Holder.of_account(account), {"budget": [{"amount": 50, "period": "month"}]})
    set_policy(Holder.of_tag(account, "team=search"), {"rpm": 60})
    text = text_of(staff, account)
    assert [row.split(" ", 1)[1] for row in table(text, "Newest credit")] == [
        "correction invoice 8 \N{MINUS SIGN}100.0000",
        "grant opening +100.0000",
    ]
    assert table(text, "Policies and budgets") == ["account 0.0000 of 50.00 this month", "tag team=search none"]


def test_each_part_needs_the_right_to_view_it(client: Client, account: Account) -> None:
    person = User.objects.create_user("staff@example.com", is_staff=True)
    client.force_login(person)
    shown = {
        "view_generation": ["Usage by month", "Top models of 30 days"],
        "view_requestfailure": ["Failures of the last 24 hours"],
        "view_ledgerentry": ["Newest credit"],
        "change_apikey": ["Policies and budgets"],
    }
    for right, captions in shown.items():
        person.user_permissions.set(Permission.objects.filter(codename__in=("view_account", right)))
        text = text_of(client, account)
        assert re.findall("<caption>(.*?)</caption>", text) == captions
        assert balance(text).startswith("100.00 EUR")


def test_it_takes_as_many_selects_however_much_was_used(staff: Client, account: Account) -> None:
    text_of(staff, account)  # fills caches of Django
    counts = []
    for _ in range(2):
        for number in range(6):
            serve(account, model=f"demo/{number}")
            fail(account)
            set_policy(Holder.of_tag(account, f"team=t{number}"), {"rpm": 60})
        with CaptureQueriesContext(connection) as captured:
            text_of(staff, account)
        counts.append(len(captured))
    assert counts[0] == counts[1]
    assert counts[0] <= 20
