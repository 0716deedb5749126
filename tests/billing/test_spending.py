"""What is spent of budgets is added up by settlements, and is what the records say (docs/policies.md#budgets)."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from accounts.audit import Actor, acting_as
from accounts.models import Account, ApiKey, AuditEvent
from accounts.policies import AppliedPolicy, compiled
from billing.ledger.spending import begin_of, budget_states, end_of
from billing.models import BudgetAlert, Generation, Spending
from billing.policies import Holder, set_policy, set_tags
from gateway.errors import InvalidRequest
from tests.billing.records import key_of, serve
from tests.factories import mismatches, new_account, new_key

pytestmark = [pytest.mark.django_db(transaction=True, databases=["default", "settlement"]), pytest.mark.also_sqlite]

COST = Decimal("0.00072")  # of a request that `serve` settles


@pytest.fixture
def account() -> Account:
    return new_account()


@pytest.fixture
def key(account: Account) -> ApiKey:
    return key_of(account)


def budget(amount: str, period: str = "month", **rules: Any) -> dict[str, Any]:
    return {"budget": [{"amount": amount, "period": period}], **rules}


def sums(holder: Holder) -> list[Decimal]:
    """Returns what is spent in the day, the week and the month of the last settlement, and in total."""
    row = Spending.objects.get(policy=holder.policy)
    return [row.in_day, row.in_week, row.in_month, row.in_total]


def test_a_settlement_adds_to_the_budgets_of_key_tags_and_account_and_to_no_other(
    account: Account, key: ApiKey
) -> None:
    set_tags(key, ["team=search", "env=prod"])
    mine = [Holder.of_key(key), Holder.of_account(account), Holder.of_tag(account, "env=prod")]
    others = [Holder.of_key(new_key(account, "other")[0]), Holder.of_tag(account, "env=pro")]
    for holder in mine + others:
        set_policy(holder, budget("5.00"))
    serve(account, tags=key.tags)
    assert [sums(holder) for holder in mine] == [[COST] * 4] * 3
    assert [sums(holder) for holder in others] == [[Decimal(0)] * 4] * 2
    assert mismatches(account) == []


def test_a_request_without_a_cost_adds_nothing(account: Account, key: ApiKey) -> None:
    set_policy(Holder.of_key(key), budget("5.00"))
    serve(account, priced=False)
    assert sums(Holder.of_key(key)) == [Decimal(0)] * 4


def test_a_budget_that_is_set_in_the_middle_counts_what_was_spent_before(account: Account, key: ApiKey) -> None:
    serve(account)
    Generation.objects.update(created_at=timezone.now() - timedelta(days=400))
    serve(account)
    holder = Holder.of_key(key)
    set_policy(holder, budget("5.00"))
    assert sums(holder) == [COST, COST, COST, 2 * COST]
    serve(account)
    set_policy(holder, budget("7.00", "week"))  # another budget goes on from the same sums
    assert sums(holder) == [2 * COST, 2 * COST, 2 * COST, 3 * COST]
    set_policy(holder, {"rpm": 5})
    assert not Spending.objects.exists()


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        (lambda today: today - timedelta(days=1), "day"),
        (lambda today: today - timedelta(days=7), "week"),
        (lambda today: today.replace(day=1) - timedelta(days=1), "month"),
        (lambda today: today + timedelta(days=400), "none"),  # the clock was set back
    ],
    ids=["yesterday", "last week", "last month", "ahead"],
)
def test_a_period_that_has_ended_begins_anew(account: Account, key: ApiKey, earlier: Any, expected: str) -> None:
    holder = Holder.of_key(key)
    set_policy(holder, budget("5.00"))
    today = timezone.now().astimezone(UTC).date()
    then = earlier(today)
    Spending.objects.update(day=then, in_day=1, in_week=1, in_month=1, in_total=1)
    serve(account)
    kept = [begin_of(period, then) >= begin_of(period, today) for period in ("day", "week", "month")]
    assert sums(holder) == [COST + is_kept for is_kept in (*kept, True)]
    assert Spending.objects.get().day == max(today, then)
    assert not kept[0] or expected == "none"


def test_the_line_that_a_settlement_crosses_is_written_once(account: Account, key: ApiKey) -> None:
    holder = Holder.of_key(key)
    amount = str(2 * COST)
    set_policy(holder, budget(amount, "month", alerts=[25, 50, 80, 100]))
    serve(account)
    assert [*BudgetAlert.objects.order_by("percent").values_list("percent", flat=True)] == [25, 50]
    serve(account)
    serve(account)
    written = BudgetAlert.objects.order_by("percent")
    today = timezone.now().astimezone(UTC).date()
    assert [(alert.percent, alert.spent, alert.begins) for alert in written] == [
        (25, COST, today.replace(day=1)),
        (50, COST, today.replace(day=1)),
        (80, 2 * COST, today.replace(day=1)),
        (100, 2 * COST, today.replace(day=1)),
    ]
    Spending.objects.update(in_month=0)
    serve(account)
    assert BudgetAlert.objects.count() == 4, "once in a period"


def test_a_policy_that_is_set_in_a_later_period_finds_nothing_spent_in_it(account: Account, key: ApiKey) -> None:
    holder = Holder.of_key(key)
    set_policy(holder, budget("5.00"))
    serve(account)
    Spending.objects.update(day=timezone.now().astimezone(UTC).date() - timedelta(days=40))
    set_policy(holder, {"budget": [{"amount": str(COST), "period": each} for each in ("month", "total")]})
    assert {alert.period for alert in BudgetAlert.objects.all()} == {"total"}


def test_a_line_that_has_been_crossed_before_the_budget_was_set_is_written_at_once(
    account: Account, key: ApiKey
) -> None:
    serve(account)
    set_policy(Holder.of_key(key), budget(str(COST), "total", alerts=[100]))
    alert = BudgetAlert.objects.get()
    assert (alert.percent, alert.spent, alert.begins) == (100, COST, date(1970, 1, 1))


def test_verify_ledger_finds_a_sum_that_is_not_what_the_records_say(account: Account, key: ApiKey) -> None:
    set_policy(Holder.of_key(key), budget("5.00"))
    serve(account)
    Spending.objects.update(in_week=COST * 2)
    (line,) = mismatches(account)
    assert f"spent in week of {key.pk}: 0.00144, records say 0.00072" in line


def test_each_change_is_recorded_and_an_equal_policy_is_none(account: Account, key: ApiKey) -> None:
    holder = Holder.of_account(account)
    assert set_policy(holder, {"rpm": 5})
    assert not set_policy(holder, {"rpm": 5})
    with acting_as(Actor(AuditEvent.ActorKind.KEY, str(key.pk), key.name)):
        assert set_policy(holder, {"rpm": 6})
    assert set_policy(holder, {})
    events = AuditEvent.objects.filter(account=account, action="policy.changed").order_by("id")
    assert [(event.old, event.new, event.actor_kind, event.actor_id) for event in events] == [
        (None, {"rpm": 5}, "system", ""),
        ({"rpm": 5}, {"rpm": 6}, "key", str(key.pk)),
        ({"rpm": 6}, None, "system", ""),
    ]
    assert holder.rules == {}


@pytest.mark.parametrize("tag", ["team", "Team=search", "team=", "team=a b", "-a=b", "a=" + "b" * 33, ""])
def test_a_bad_tag_is_refused_and_nothing_is_changed(key: ApiKey, tag: str) -> None:
    set_tags(key, ["a=b"])
    with pytest.raises(InvalidRequest) as refused:
        set_tags(key, ["env=prod", tag])
    assert refused.value.param == "tags[1]"
    key.refresh_from_db()
    assert key.tags == "a=b"


def test_a_key_has_at_most_eight_tags(key: ApiKey) -> None:
    set_tags(key, [f"tag={number}" for number in range(8)])
    with pytest.raises(InvalidRequest, match="at most 8"):
        set_tags(key, [f"tag={number}" for number in range(9)])


@pytest.mark.parametrize(
    ("period", "begins", "ends"),
    [
        ("day", date(2026, 11, 29), datetime(2026, 11, 30, tzinfo=UTC)),
        ("week", date(2026, 11, 23), datetime(2026, 11, 30, tzinfo=UTC)),
        ("month", date(2026, 11, 1), datetime(2026, 12, 1, tzinfo=UTC)),
        ("total", date(1970, 1, 1), None),
    ],
)
def test_periods_are_those_of_utc(period: str, begins: date, ends: datetime | None) -> None:
    sunday = date(2026, 11, 29)
    assert (begin_of(period, sunday), end_of(period, sunday)) == (begins, ends)
    policy = AppliedPolicy("key", "", compiled(budget("1.00", period)), "2026-11-22 10 20 30 40")
    (state,) = budget_states([policy], sunday)
    assert state.spent == {"day": 0, "week": 0, "month": 30, "total": 40}[period]
