"""Adds up what is spent of budgets, and compares it with them (docs/policies.md#budgets).

Every policy with a budget has a row of `Spending`, which settlements add to: PostgreSQL by a part of their statement
(`settling_statement.py`), SQLite by `add`. Both follow the rules of `begin_of`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple, TypeVar
from uuid import UUID

from django.db import OperationalError, connection, transaction
from django.db.models import Q, QuerySet, Sum

from accounts.models import Policy
from accounts.policies import AppliedPolicy, Budget, Rules, compiled
from gateway.db.postgresql.base import LOCK_NOT_AVAILABLE
from gateway.errors import BudgetExceeded
from gateway.money import from_units, plain, to_units

from ..models import BudgetAlert, Generation, Spending, Wallet

PERIODS = ("day", "week", "month", "total")
BEGINNING = date(1970, 1, 1)  # where the period `total` begins
DAY = timedelta(days=1)
LOCK_SECONDS = 2
TRIES = 3
T = TypeVar("T")


def begin_of(period: str, day: date) -> date:
    """Returns the first day of the period that contains this UTC day. A week begins on Monday."""
    match period:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case _:
            return BEGINNING


def end_of(period: str, day: date) -> datetime | None:
    """Returns when the period that contains this day ends; None for `total`."""
    begin = begin_of(period, day)
    match period:
        case "day":
            after = begin + DAY
        case "week":
            after = begin + 7 * DAY
        case "month":
            after = (begin + 31 * DAY).replace(day=1)
        case _:
            return None
    return datetime.combine(after, time(), UTC)


class Sums(NamedTuple):
    """Holds a row of Spending: the UTC day of the last settlement, and amounts in units of money."""

    day: date
    in_day: int
    in_week: int
    in_month: int
    in_total: int

    @classmethod
    def of(cls, text: str) -> "Sums":
        """Reads the text of `AppliedPolicy.spent`."""
        day, *amounts = text.split(" ")
        return cls(date.fromisoformat(day), *map(int, amounts))

    @classmethod
    def of_row(cls, row: Spending) -> "Sums":
        return cls(row.day, *map(to_units, (row.in_day, row.in_week, row.in_month, row.in_total)))

    def in_period(self, period: str, today: date) -> int:
        """Returns what was spent in the period that contains `today`."""
        if begin_of(period, self.day) < begin_of(period, today):
            return 0
        amount: int = getattr(self, f"in_{period}")
        return amount


@dataclass(frozen=True, slots=True)
class BudgetState:
    """Holds a budget with its policy, and how many units of money are spent and left of it on the day `today`."""

    policy: AppliedPolicy
    budget: Budget
    spent: int
    today: date

    @property
    def left(self) -> int:
        return to_units(self.budget.amount) - self.spent

    @property
    def name(self) -> str:
        """Returns the subject of a message, such as "The key's budget"."""
        policy = self.policy
        return f"The budget of tag {policy.tag!r}" if policy.tag else f"The {policy.level}'s budget"

    def exceeded(self, currency: str) -> BudgetExceeded:
        """Returns the error for a request while nothing is left."""
        period = self.budget.period
        budget = f"{self.name} of {plain(self.budget.amount)} {currency}"
        spent = f"{plain(from_units(self.spent).normalize())} {currency}"
        renews = end_of(period, self.today)
        if renews is None:
            return BudgetExceeded(f"{budget} in total is spent: {spent}. It does not renew.")
        since = begin_of(period, self.today)
        seconds = int((renews - datetime.now(UTC)).total_seconds()) + 1
        return BudgetExceeded(
            f"{budget} per {period} is spent: {spent} since {since} 00:00 UTC. "
            f"It renews on {renews:%Y-%m-%d} at 00:00 UTC.",
            headers={"Retry-After": str(max(1, seconds))} if seconds <= DAY.total_seconds() else {},
        )


def budget_states(policies: Sequence[AppliedPolicy], today: date) -> Iterator[BudgetState]:
    """Yields the state of each budget of these policies."""
    for policy in policies:
        sums = Sums.of(policy.spent) if policy.spent else None
        for budget in policy.rules.budgets:
            yield BudgetState(policy, budget, 0 if sums is None else sums.in_period(budget.period, today), today)


def states_of(policy: Policy, today: date) -> Iterator[BudgetState]:
    """Yields the state of each budget of a stored policy."""
    row: Spending | None = getattr(policy, "spending", None)  # the relation raises an AttributeError if there is none
    spent = "" if row is None else " ".join(map(str, Sums.of_row(row)))
    return budget_states([AppliedPolicy(policy.level, policy.tag, compiled(policy.rules), spent)], today)


def lines_of(rules: Rules) -> list[dict[str, int | str]]:
    """Returns the amounts at which a policy's alerts are due, in the form of `Spending.lines`."""
    return [
        {
            "period": budget.period,
            "percent": percent,
            "amount": to_units(budget.amount),
            "units": -(-to_units(budget.amount) * percent // 100),
        }
        for budget in rules.budgets
        for percent in rules.alerts
        if budget.amount
    ]


def alerts_of_periods(account_id: UUID, today: date) -> list[BudgetAlert]:
    """Returns the alerts of an account's present budgets in the periods that contain `today`, newest first."""
    in_period = Q()
    for period in PERIODS:
        in_period |= Q(period=period, begins=begin_of(period, today))
    found = BudgetAlert.objects.filter(in_period, policy__account_id=account_id).select_related("policy__key")
    return [alert for alert in found.order_by("-crossed_at", "-percent") if has_budget(alert)]


def has_budget(alert: BudgetAlert) -> bool:
    """Tells whether the policy still has a budget for the alert's period."""
    return any(budget.period == alert.period for budget in compiled(alert.policy.rules).budgets)


def settled_by(policy: Policy | Spending) -> "QuerySet[Generation]":
    """Selects the records that count against a policy's budgets."""
    records = Generation.objects.filter(account_id=policy.account_id, cost__isnull=False)
    if policy.key_id is not None:
        return records.filter(key_id=policy.key_id)
    if policy.tag:  # tags are separated by spaces
        return records.filter(tags__has_word=policy.tag)
    return records


def add(generation: Generation, using: str) -> None:
    """Adds a record's cost to every row of Spending that it counts against, and writes the alerts that are due."""
    if generation.cost is None:
        return
    tags = (generation.tags or "").split(" ")
    today = generation.created_at.astimezone(UTC).date()
    mine = Q(key_id=generation.key_id) | Q(key=None)
    for row in Spending.objects.using(using).filter(mine, account_id=generation.account_id, tag__in=["", *tags]):
        before = Sums.of_row(row)
        for period in PERIODS:
            setattr(row, f"in_{period}", from_units(before.in_period(period, today)) + generation.cost)
        row.day = max(row.day, today)
        row.save(using=using)
        write_alerts(row, generation.cost, generation.created_at, using)


def write_alerts(row: Spending, added: Decimal | None, now: datetime, using: str = "default") -> None:
    """Writes an alert for each line that the amount `added` has crossed; if it is None, for each line that is reached.

    Only the periods that contain the time `now` count.
    """
    today = max(row.day, now.astimezone(UTC).date())
    sums = Sums.of_row(row)
    for line in row.lines:
        spent, units = sums.in_period(line["period"], today), line["units"]
        if spent >= units and (added is None or spent - to_units(added) < units):
            BudgetAlert.objects.using(using).get_or_create(
                policy_id=row.policy_id,
                period=line["period"],
                begins=begin_of(line["period"], today),
                percent=line["percent"],
                defaults={
                    "amount": from_units(line["amount"]),
                    "spent": from_units(spent),
                    "crossed_at": now,
                },
            )


def restart(policy: Policy, today: date, already: "list[Decimal]", since: datetime) -> Spending:
    """Begins to add up what is spent of a policy's budgets. The caller excludes settlements.

    `already` are the sums of the records before `since`, as `sums_from_records` returned them for `today`.
    """
    newer = sums_from_records(policy, today, since=since)
    in_day, in_week, in_month, in_total = map(sum, zip(already, newer, strict=True))
    return Spending.objects.create(
        policy=policy,
        account_id=policy.account_id,
        key_id=policy.key_id,
        tag=policy.tag,
        day=today,
        in_day=in_day,
        in_week=in_week,
        in_month=in_month,
        in_total=in_total,
    )


def exclude_settlements() -> None:
    """Waits for the settlements that run now, and lets new ones wait, until the end of the transaction.

    It locks the table of Spending, because a lock on the wallet comes too late: a settlement that waits for its wallet
    has taken its snapshot already, and does not see a row of Spending that is committed meanwhile. A settlement that
    waits for the table takes its snapshot afterwards. Raises OperationalError after LOCK_SECONDS, because the
    settlements of all accounts wait meanwhile. On SQLite there is nothing to do: only one transaction can write.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
            cursor.execute(f"LOCK TABLE {Spending._meta.db_table} IN SHARE ROW EXCLUSIVE MODE")


def try_again_if_locked(work: Callable[[], T]) -> T:
    """Does work that is one transaction and may call `exclude_settlements`; repeats it if a settlement takes long."""
    tries = 0
    while True:
        tries += 1
        try:
            return work()
        except OperationalError as error:
            if tries == TRIES or getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise


def sums_from_records(
    policy: Policy | Spending, day: date, *, since: datetime | None = None, before: datetime | None = None
) -> list[Decimal]:
    """Adds up a policy's records in the day, week and month of `day` and in total, between two moments if given."""
    records = settled_by(policy)
    if since is not None:
        records = records.filter(created_at__gte=since)
    if before is not None:
        records = records.filter(created_at__lt=before)
    sums = {}
    for period in PERIODS:
        begin = datetime.combine(begin_of(period, day), time(), UTC)
        sums[period] = Sum("cost", filter=Q(created_at__gte=begin), default=Decimal(0))
    found = records.aggregate(**sums)
    return [Decimal(found[period]) for period in PERIODS]


def mismatches(account_ids: Collection[UUID]) -> Iterator[tuple[UUID, str]]:
    """Yields the account and a line for each sum that differs from the records, read under the wallet's lock."""
    for pk, account_id in Spending.objects.filter(account_id__in=account_ids).values_list("pk", "account_id"):
        with transaction.atomic():
            Wallet.objects.select_for_update(no_key=True).get(pk=account_id)
            row = Spending.objects.filter(pk=pk).first()
            found = [] if row is None else sums_from_records(row, row.day)
        for period, sum_of_records in zip(PERIODS, found, strict=False):
            kept = getattr(row, f"in_{period}")
            if kept != sum_of_records:
                whose = "account" if row is None else row.tag or row.key_id or "account"
                yield account_id, f"spent in {period} of {whose}: {plain(kept)}, records say {plain(sum_of_records)}"
