"""`export_usage --format focus` writes rows that keep the rules of FOCUS 1.2 and 1.4, and adds up with the ledger."""

import csv
import io
import json
import re
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Sum
from pytest_django import Settings

from accounts.models import Account
from billing.ledger import credits
from billing.models import Generation, LedgerEntry
from billing.usage import focus, statement
from billing.usage.statement import Period, StatementTotals
from catalogue.footprint.energy import EnergyFigures, PerToken, Range
from catalogue.models import Place, Provider
from catalogue.pricing import Price, Rates, Usage, cost_of
from gateway.money import EXACT
from tests.billing.api import Holder, seconds, store
from tests.billing.timeline import settled_at
from tests.chat import answer, ask, stream
from tests.factories import EUR_PRICE, SMALL, TIERED_PRICE, new_account, new_key, served
from tests.servers.customer import Customer

pytestmark = pytest.mark.also_sqlite

ALWAYS = ("--since", "2000-01-01", "--until", "2999-12-31")
NOON = datetime(2026, 10, 30, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EACH_PRICE = Price(
    "EUR",
    prompt=Decimal("0.6000000001"),
    completion=Decimal("1.2"),
    cache_read=Decimal("0.0300000003"),
    cache_write=Decimal("0.75"),
    cache_write_1h=Decimal("1.1999999999"),
)
EACH_KIND = Usage(uncached_prompt=333, cache_read=77, cache_write_5m=5, cache_write_1h=3, completion=49)
Row = dict[str, str]

# The rules


class Rule(NamedTuple):
    """Holds what a version says of a column: its level, whether it can be null, its format and its allowed values."""

    level: str  # M: mandatory; C: conditional, and the gateway meets the condition; R: recommended
    nullable: bool
    matches: Callable[[str], object]
    allowed: tuple[str, ...] = ()


def is_decimal(text: str) -> object:
    """Checks NumericFormat: no exponent with a plus sign, no thousands separators, no sign for positive values."""
    return re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(E-?[0-9]+)?", text)


def is_not_negative(text: str) -> object:
    return is_decimal(text) and Decimal(text) >= 0


def is_moment(text: str) -> object:
    return re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text)


def is_currency(text: str) -> object:
    return re.fullmatch("[A-Z]{3}", text)


def is_text(text: str) -> object:
    return text == text.strip()


def is_unit(text: str) -> object:
    """Checks UnitFormat: a capitalized plural, with a whole number in front if units are counted by the thousand."""
    return re.fullmatch("([0-9]+ )?[A-Z][a-z]+s", text)


def is_key_values(text: str) -> object:
    read = json.loads(text)
    return isinstance(read, dict) and all(isinstance(value, str | bool | int | None) for value in read.values())


RULES = {
    "BilledCost": Rule("M", False, is_decimal),
    "BillingAccountId": Rule("M", False, is_text),
    "BillingAccountName": Rule("M", True, is_text),
    "BillingCurrency": Rule("M", False, is_currency),
    "BillingPeriodEnd": Rule("M", False, is_moment),
    "BillingPeriodStart": Rule("M", False, is_moment),
    "ChargeCategory": Rule("M", False, is_text, ("Usage", "Purchase", "Tax", "Credit", "Adjustment")),
    "ChargeClass": Rule("M", True, is_text, ("Correction",)),
    "ChargeDescription": Rule("M", True, is_text),
    "ChargeFrequency": Rule("R", False, is_text, ("One-Time", "Recurring", "Usage-Based")),
    "ChargePeriodEnd": Rule("M", False, is_moment),
    "ChargePeriodStart": Rule("M", False, is_moment),
    "CommitmentDiscountStatus": Rule("C", True, is_text, ("Used", "Unused")),
    "ConsumedQuantity": Rule("C", True, is_decimal),
    "ConsumedUnit": Rule("C", True, is_unit),
    "ContractedCost": Rule("M", False, is_decimal),
    "ContractedUnitPrice": Rule("C", True, is_not_negative),
    "EffectiveCost": Rule("M", False, is_decimal),
    "InvoiceId": Rule("R", True, is_text),
    "InvoiceIssuerName": Rule("M", False, is_text),
    "ListCost": Rule("M", False, is_decimal),
    "ListUnitPrice": Rule("C", True, is_not_negative),
    "PricingCategory": Rule("C", True, is_text, ("Standard", "Dynamic", "Committed", "Other")),
    "PricingCurrency": Rule("C", False, is_currency),
    "PricingCurrencyContractedUnitPrice": Rule("R", True, is_not_negative),
    "PricingCurrencyEffectiveCost": Rule("R", False, is_decimal),
    "PricingCurrencyListUnitPrice": Rule("R", True, is_not_negative),
    "PricingQuantity": Rule("M", True, is_decimal),
    "PricingUnit": Rule("M", True, is_unit),
    "RegionId": Rule("C", True, is_text),
    "RegionName": Rule("C", True, is_text),
    "ServiceCategory": Rule("M", False, is_text, ("AI and Machine Learning",)),  # of 19, the only one for models
    "ServiceName": Rule("M", False, is_text),
    "ServiceSubcategory": Rule("R", False, is_text, ("Generative AI",)),  # of those whose parent is the category
    "SkuId": Rule("C", True, is_text),
    "SkuMeter": Rule("C", True, is_text),
    "SkuPriceDetails": Rule("C", True, is_key_values),
    "SkuPriceId": Rule("C", True, is_text),
    "SubAccountId": Rule("C", True, is_text),
    "SubAccountName": Rule("C", True, is_text),
    "Tags": Rule("C", True, is_key_values),
}
RULES_OF = {
    "1.2": RULES | {"ProviderName": Rule("M", False, is_text), "PublisherName": Rule("M", False, is_text)},
    "1.4": RULES | {"ServiceProviderName": Rule("M", False, is_text), "HostProviderName": Rule("M", True, is_text)},
}
VERSIONS = list(RULES_OF)
# These are null together, and known for usage and purchases.
PRICED = ("ListUnitPrice", "ContractedUnitPrice", "PricingQuantity", "PricingUnit", "SkuId", "SkuPriceId", "SkuMeter")


def assert_keeps_the_rules(row: Row, version: str) -> None:
    for name, rule in RULES_OF[version].items():
        value = row[name]
        assert value or rule.nullable, f"{name} is null"
        assert not value or rule.matches(value), f"{name}: {value!r}"
        assert not value or not rule.allowed or value in rule.allowed, f"{name}: {value!r}"
    category = row["ChargeCategory"]
    assert {bool(row[name]) for name in PRICED} == {category in ("Usage", "Purchase")}
    assert bool(row["ConsumedQuantity"]) == bool(row["ConsumedUnit"]) == (category == "Usage")
    assert not row["CommitmentDiscountStatus"]  # it must be null without a CommitmentDiscountId
    assert bool(row["RegionId"]) == bool(row["RegionName"])
    assert bool(row["SubAccountId"]) == bool(row["SubAccountName"])
    assert (row["ChargeFrequency"] == "Usage-Based") == (category == "Usage")
    assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
    for unit_price, cost in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
        if row[unit_price]:
            assert _product(row[unit_price], row["PricingQuantity"]) == Decimal(row[cost])
    if category == "Purchase":
        assert Decimal(row["EffectiveCost"]) == Decimal(row["PricingCurrencyEffectiveCost"]) == 0


def _product(one: str, other: str) -> Decimal:
    return EXACT.multiply(Decimal(one), Decimal(other))


# The rows


@pytest.fixture
def acme(db: None) -> Account:
    return new_account("Acme", credit="10")


def export(account: Account, *options: str) -> str:
    out = io.StringIO()
    period = () if "--since" in options else ALWAYS
    call_command("export_usage", str(account.pk), *period, "--format", "focus", *options, stdout=out)
    return out.getvalue()


def rows(account: Account, *options: str) -> list[Row]:
    return list(csv.DictReader(io.StringIO(export(account, *options), newline="")))


def usage_of(account: Account, *options: str) -> list[Row]:
    return [row for row in rows(account, *options) if row["ChargeCategory"] == "Usage"]


def total(rows: list[Row], column: str) -> Decimal:
    return sum((Decimal(row[column]) for row in rows if row[column]), Decimal(0))


def entries_of(account: Account, kind: str) -> Decimal:
    amount = LedgerEntry.objects.filter(account=account, kind=kind).aggregate(sum=Sum("amount"))["sum"]
    return amount or Decimal(0)


def priced(account: Account, usage: Usage, price: Price, rates: Rates, **columns: Any) -> Generation:
    """Builds a record whose price is in another currency than the account."""
    cost = cost_of(price, usage, rates)
    money = {"prompt_cost": cost.prompt, "completion_cost": cost.completion, "cost": cost.total, "cost_eur": cost.eur}
    return served(account, usage, price, account_rate=rates.account, eur_rate=rates.eur, **money, **columns)


def serve_of_everything(account: Account) -> None:
    """Settles requests of two days: cached, tiered, with a new price, in USD, interrupted, not billed, tagged."""
    footprint: dict[str, Any] = {
        "energy_per_token_wh": Decimal("0.00021"),
        "energy_wh": Decimal("0.0980700001"),
        "carbon_gco2e": Decimal("0.0000000007"),
    }
    other, _ = new_key(account, "other")
    dollars = Price("USD", prompt=Decimal("0.55"), completion=Decimal("2.2"))
    dearer = Price("EUR", prompt=Decimal("0.7"), completion=Decimal("1.3"))
    rates = Rates(account=Decimal("0.912345678901"), eur=Decimal("0.912345678901"))
    requests = [
        *(served(account, EACH_KIND, EACH_PRICE, **footprint) for _ in range(5)),
        served(account, Usage(uncached_prompt=1001, cache_read=1, completion=5), TIERED_PRICE),
        served(account, SMALL, TIERED_PRICE),
        served(account, SMALL, dearer),
        priced(account, EACH_KIND, dollars, rates, region="DEFRA", energy_wh=Decimal("0.0000000003")),
        served(account, SMALL, interrupted=True, usage_estimated=True, ending=Generation.Ending.CLIENT_LEFT),
        served(account, SMALL, priced=False, ending=Generation.Ending.COST_UNRESOLVABLE),
        served(account, SMALL, key=other, tags="env=prod team=search"),
        served(account, Usage()),
    ]
    for number, record in enumerate(requests):
        settled_at(NOON + number * 2 * HOUR, record)
    credits.grant(account.pk, Decimal("0.1234567891"), "invoice 7")
    credits.correct(account.pk, Decimal("0.0000000003"), "refund")
    credits.correct(account.pk, Decimal(-1), "granted twice")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("granularity", ["day", "hour"])
def test_every_row_keeps_the_rules_of_its_version(acme: Account, version: str, granularity: str) -> None:
    serve_of_everything(acme)
    written = rows(acme, "--focus-version", version, "--granularity", granularity)
    assert {row["ChargeCategory"] for row in written} == {"Usage", "Purchase", "Adjustment"}
    for row in written:
        assert_keeps_the_rules(row, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_are_those_of_the_version_and_the_gateways_own_come_last(version: str) -> None:
    of_focus = [name for name in focus.COLUMNS[version] if not name.startswith("x_")]
    assert of_focus == sorted(RULES_OF[version])
    assert list(focus.COLUMNS[version][: len(of_focus)]) == of_focus
    assert focus.DEFAULT_VERSION == "1.2"


def test_a_reader_of_1_4_finds_who_sells_and_who_hosts(acme: Account, settings: Settings) -> None:
    settings.OPERATOR_NAME = "Acme AI"
    Provider.objects.create(slug="sim", name="The Simulator")
    settled_at(NOON, served(acme))
    usage, *_ = rows(acme, "--focus-version", "1.4")
    assert (usage["ServiceProviderName"], usage["HostProviderName"]) == ("Acme AI", "The Simulator")
    assert not {"ProviderName", "PublisherName"} & usage.keys()
    usage, *_, purchase = rows(acme)
    assert (usage["ProviderName"], usage["PublisherName"]) == ("Acme AI", "The Simulator")
    assert (purchase["PublisherName"], purchase["InvoiceIssuerName"]) == ("Acme AI", "Acme AI")


# The sums


def test_what_a_server_served_adds_up_with_its_ledger(account: Customer) -> None:
    answer(account, "echo")
    stream(account, "drop")
    ask(account, "bad-usage")
    account.gateway.manage("grant_credit", account.name, "5", "--reference", "more").ok()
    done = account.gateway.manage("export_usage", account.name, *ALWAYS, "--format", "focus", "--focus-version", "1.4")
    assert (done.code, done.stderr) == (0, "")
    written = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
    for row in written:
        assert_keeps_the_rules(row, "1.4")
    statement_ = account.gateway.manage("export_usage", account.name, *ALWAYS).stdout
    *records, last = csv.DictReader(io.StringIO(statement_, newline=""))
    assert total(written, "EffectiveCost") == Decimal(last["cost"]) > 0
    assert total(written, "BilledCost") == Decimal(last["credits"]) == 105
    assert total(written, "x_EnergyWh") == Decimal(last["energy_wh"] or 0)
    assert total(written, "ConsumedQuantity") == sum(int(record["total_tokens"]) for record in records)


@pytest.mark.parametrize("granularity", ["day", "hour"])
@pytest.mark.parametrize("currency", ["EUR", "USD"])
def test_sums_are_those_of_the_ledger_to_the_last_digit(db: None, granularity: str, currency: str) -> None:
    account = new_account("Acme", credit="10", currency=currency)
    serve_of_everything(account)
    written = rows(account, "--granularity", granularity)
    by_category = {
        category: [row for row in written if row["ChargeCategory"] == category]
        for category in ("Usage", "Purchase", "Adjustment")
    }
    assert total(by_category["Usage"], "EffectiveCost") == -entries_of(account, "usage") > 0
    assert total(by_category["Purchase"], "BilledCost") == entries_of(account, "grant") == Decimal("10.1234567891")
    assert total(by_category["Adjustment"], "EffectiveCost") == -entries_of(account, "correction")
    assert total(by_category["Usage"], "BilledCost") == total(by_category["Purchase"], "EffectiveCost") == 0
    balance = LedgerEntry.objects.filter(account=account).latest("seq").balance_after
    assert total(written, "BilledCost") - total(written, "EffectiveCost") == balance
    assert {row["BillingCurrency"] for row in written} == {currency}
    figures = Generation.objects.aggregate(
        energy=Sum("energy_wh"),
        carbon=Sum("carbon_gco2e"),
        prompt=Sum("prompt_tokens"),
        output=Sum("completion_tokens"),
    )
    assert total(written, "x_EnergyWh") == figures["energy"]
    assert total(written, "x_CarbonGco2e") == figures["carbon"]
    assert total(written, "ConsumedQuantity") == figures["prompt"] + figures["output"]


@pytest.mark.parametrize(
    ("units", "weights", "expected"),
    [
        (10, [1, 1, 1, 1], [3, 3, 2, 2]),
        (10, [0, 0, 5, 0], [0, 0, 10, 0]),
        (1, [333, 334, 333, 0], [0, 1, 0, 0]),
        (7, [3, 3, 1, 0], [3, 3, 1, 0]),
        (0, [3, 3, 1, 0], [0, 0, 0, 0]),
        (10**18 + 1, [10**18, 10**18, 0, 0], [5 * 10**17 + 1, 5 * 10**17, 0, 0]),
    ],
)
def test_units_left_by_rounding_go_to_the_largest_remainders(
    units: int, weights: list[int], expected: list[int]
) -> None:
    assert focus.divided(units, weights, [1, 1, 1, 1]) == expected


def test_a_total_without_weights_is_divided_by_tokens_and_one_without_tokens_is_kept() -> None:
    assert focus.divided(9, [0, 0], [1, 2]) == [3, 6]
    assert focus.divided(9, [0, 0], [0, 0]) == [9, 0]


def test_kinds_of_tokens_have_rows_whose_costs_add_up_to_the_records(acme: Account) -> None:
    record = settled_at(NOON, served(acme, EACH_KIND, EACH_PRICE))
    uncached, read, written, written_1h, completion = usage_of(acme)
    kinds = [row["SkuId"] for row in (uncached, read, written, written_1h, completion)]
    assert kinds == [f"sim/test/echo/FRPAR/{kind.sku}" for kind in focus.KINDS]
    assert [row["ConsumedQuantity"] for row in usage_of(acme)] == ["333.00", "77.00", "5.00", "3.00", "49.00"]
    assert total([uncached, read, written, written_1h], "EffectiveCost") == record.prompt_cost
    assert completion["EffectiveCost"] == "0.0000588"
    # 333 x 0.6000000001 = 199.8000000333 and 77 x 0.0300000003 = 2.3100000231 millionths, rounded to 10 digits.
    assert (uncached["EffectiveCost"], read["EffectiveCost"]) == ("0.0001998", "0.00000231")
    assert (uncached["ListCost"], uncached["PricingQuantity"]) == ("0.0001998000000333", "0.000333")
    assert (uncached["ListUnitPrice"], uncached["PricingUnit"]) == ("0.6000000001", "1000000 Tokens")


def test_energy_is_divided_by_what_each_kind_of_token_takes(acme: Account) -> None:
    output, prompt, cached = (Range(*[Decimal(figure)] * 3) for figure in ("0.001", "0.0001", "0.00001"))
    figures = EnergyFigures(PerToken(output, prompt, cached)).stored()
    usage = Usage(uncached_prompt=100, cache_read=1000, completion=30)
    columns: dict[str, Any] = {"energy_figures": figures, "energy_wh": Decimal("0.05"), "carbon_gco2e": Decimal("0.01")}
    settled_at(NOON, served(acme, usage, **columns))
    written = usage_of(acme)
    assert [row["x_EnergyWh"] for row in written] == ["0.01", "0.01", "0.03"]
    assert [row["x_CarbonGco2e"] for row in written] == ["0.002", "0.002", "0.006"]


# What has a row of its own


def test_requests_of_a_day_with_one_price_share_a_row(acme: Account) -> None:
    for number in range(3):
        settled_at(NOON + number * HOUR, served(acme))
    prompt, completion = usage_of(acme)
    assert (prompt["ConsumedQuantity"], completion["ConsumedQuantity"]) == ("3000.00", "600.00")
    assert (prompt["ChargePeriodStart"], prompt["ChargePeriodEnd"]) == ("2026-10-30T00:00:00Z", "2026-10-31T00:00:00Z")
    assert (prompt["BillingPeriodStart"], prompt["BillingPeriodEnd"]) == (
        "2026-10-01T00:00:00Z",
        "2026-11-01T00:00:00Z",
    )
    by_hour = usage_of(acme, "--granularity", "hour")
    assert [row["ChargePeriodStart"] for row in by_hour[::2]] == [f"2026-10-30T{hour}:00:00Z" for hour in (12, 13, 14)]
    assert by_hour[0]["ChargePeriodEnd"] == "2026-10-30T13:00:00Z"


def test_the_last_billing_period_of_a_year_ends_in_the_next(acme: Account) -> None:
    settled_at(datetime(2026, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), served(acme))
    row, *_ = usage_of(acme, "--granularity", "hour")
    assert (row["ChargePeriodEnd"], row["BillingPeriodEnd"]) == ("2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z")


def test_a_new_price_within_a_day_has_rows_and_a_price_id_of_its_own(acme: Account) -> None:
    dearer = Price("EUR", prompt=Decimal("0.75"), completion=EUR_PRICE.completion)
    for number, price in enumerate((EUR_PRICE, dearer, EUR_PRICE)):
        settled_at(NOON + number * HOUR, served(acme, price=price))
    before, completion, after = usage_of(acme)
    assert (before["ListUnitPrice"], before["ConsumedQuantity"]) == ("0.60", "2000.00")
    assert (after["ListUnitPrice"], after["ConsumedQuantity"]) == ("0.75", "1000.00")
    assert completion["ConsumedQuantity"] == "600.00"
    assert before["SkuId"] == after["SkuId"]
    assert (before["SkuPriceId"], after["SkuPriceId"]) == (
        "sim/test/echo/FRPAR/prompt:EUR:0.60",
        "sim/test/echo/FRPAR/prompt:EUR:0.75",
    )


def test_a_tier_has_rows_of_its_own(acme: Account) -> None:
    settled_at(NOON, served(acme, Usage(uncached_prompt=1000), TIERED_PRICE))
    settled_at(NOON, served(acme, Usage(uncached_prompt=1001), TIERED_PRICE))
    base, tier = usage_of(acme)
    assert (base["ListUnitPrice"], tier["ListUnitPrice"]) == ("0.60", "1.20")
    assert tier["SkuPriceId"].endswith("prompt:EUR:1.20:above-1000")
    assert json.loads(tier["SkuPriceDetails"]) == {"x_TokenKind": "prompt", "x_AbovePromptTokens": "1000"}
    assert json.loads(base["SkuPriceDetails"]) == {"x_TokenKind": "prompt"}


def test_a_price_in_another_currency_is_shown_in_both_and_changes_with_the_rate(acme: Account) -> None:
    dollars = Price("USD", prompt=Decimal(2), completion=Decimal(4))
    for number, rate in enumerate((Decimal("0.9"), Decimal("0.912345678901"))):
        rates = Rates(account=rate, eur=rate)
        settled_at(NOON + number * HOUR, priced(acme, Usage(uncached_prompt=1000), dollars, rates))
    one, other = usage_of(acme)
    assert (one["ListUnitPrice"], other["ListUnitPrice"]) == ("1.80", "1.824691357802")
    for row in (one, other):
        assert (row["BillingCurrency"], row["PricingCurrency"]) == ("EUR", "USD")
        assert row["PricingCurrencyListUnitPrice"] == row["PricingCurrencyContractedUnitPrice"] == "2.00"
        assert row["PricingCurrencyEffectiveCost"] == "0.002"
    assert (other["EffectiveCost"], other["ListCost"]) == ("0.0018246914", "0.001824691357802")


def test_a_request_that_was_not_billed_is_used_at_its_price_and_costs_nothing(acme: Account) -> None:
    settled_at(NOON, served(acme))
    settled_at(NOON, served(acme, priced=False))
    billed, _, unbilled, _ = usage_of(acme)
    assert (billed["x_Billed"], unbilled["x_Billed"]) == ("true", "false")
    assert (unbilled["ConsumedQuantity"], unbilled["ListCost"]) == ("1000.00", "0.0006")
    assert unbilled["EffectiveCost"] == unbilled["PricingCurrencyEffectiveCost"] == "0.00"


def test_estimated_tokens_are_apart_from_counted_ones(acme: Account) -> None:
    settled_at(NOON, served(acme))
    settled_at(NOON, served(acme, interrupted=True, usage_estimated=True))
    assert [row["x_UsageEstimated"] for row in usage_of(acme)] == ["false", "false", "true", "true"]


def test_unknown_energy_is_no_zero_and_is_apart_from_known(acme: Account) -> None:
    settled_at(NOON, served(acme, energy_wh=Decimal("0.12")))
    settled_at(NOON, served(acme))
    known, _, unknown, _ = usage_of(acme)
    assert (known["x_EnergyWh"], known["x_CarbonGco2e"]) == ("0.10", "")
    assert unknown["x_EnergyWh"] == ""


def test_a_key_is_a_sub_account_and_its_tags_are_an_object(acme: Account) -> None:
    Place.objects.create(code="XXFOC", name="Focus", country="FR", eu=True, eea=True)
    key, _ = new_key(acme, "search")
    settled_at(NOON, served(acme, key=key, tags="env=prod team=search", region="XXFOC"))
    settled_at(NOON, served(acme))
    tagged, _, plain, _ = usage_of(acme)
    assert (tagged["SubAccountId"], tagged["SubAccountName"]) == (str(key.pk), "search")
    assert json.loads(tagged["Tags"]) == {"env": "prod", "team": "search"}
    assert (tagged["RegionId"], tagged["RegionName"]) == ("XXFOC", "Focus")
    assert (tagged["x_Model"], tagged["x_Provider"]) == ("test/echo", "sim")
    assert plain["Tags"] == ""


def test_a_record_whose_terms_are_missing_keeps_its_cost(acme: Account) -> None:
    record = settled_at(NOON, served(acme, EACH_KIND, EACH_PRICE))
    Generation.objects.filter(pk=record.pk).update(terms_id=uuid4())
    written = usage_of(acme)
    assert total(written, "EffectiveCost") == total(written, "ListCost") == record.cost
    assert {row[name] for row in written for name in ("ListUnitPrice", "SkuPriceId", "PricingQuantity")} == {""}
    assert {row["PricingCurrency"] for row in written} == {"EUR"}


# Credit


def test_a_top_up_is_billed_and_has_no_effective_cost(acme: Account) -> None:
    (row,) = rows(acme)
    entry = LedgerEntry.objects.get(account=acme)
    assert (row["ChargeCategory"], row["ChargeFrequency"]) == ("Purchase", "One-Time")
    assert (row["BilledCost"], row["EffectiveCost"], row["PricingQuantity"]) == ("10.00", "0.00", "10.00")
    assert (row["SkuPriceId"], row["PricingUnit"], row["ListUnitPrice"]) == ("credit:EUR", "Credits", "1.00")
    assert row["ChargeDescription"] == f"Top-up: {entry.reference}"
    assert row["ChargePeriodStart"] == f"{entry.created_at:%Y-%m-%d}T00:00:00Z"


def test_a_correction_changes_what_usage_costs_and_is_not_billed(acme: Account) -> None:
    credits.correct(acme.pk, Decimal("0.5"), "refund")
    row = next(row for row in rows(acme) if row["ChargeCategory"] == "Adjustment")
    assert (row["BilledCost"], row["EffectiveCost"], row["ListCost"]) == ("0.00", "-0.50", "-0.50")
    assert (row["ChargeDescription"], row["ChargeClass"]) == ("Correction: refund", "")


# The period, and other accounts


def test_an_empty_period_has_a_header_only(acme: Account) -> None:
    settled_at(NOON, served(acme))
    text = export(acme, "--since", "2999-01-01", "--until", "2999-01-02")
    assert text == ",".join(focus.COLUMNS["1.2"]) + "\r\n"


def test_only_the_accounts_own_records_of_the_period_are_written(acme: Account) -> None:
    settled_at(NOON, served(new_account("Zenith")))
    settled_at(NOON, served(acme))
    settled_at(NOON + DAY, served(acme, Usage(uncached_prompt=7)))
    (row,) = rows(acme, "--since", "2026-10-31", "--until", "2026-10-31")
    assert (row["ConsumedQuantity"], row["BillingAccountId"]) == ("7.00", str(acme.pk))
    assert row["BillingAccountName"] == "Acme"


def test_what_is_booked_meanwhile_is_left_to_the_next_export(acme: Account) -> None:
    settled_at(NOON, served(acme))
    totals = StatementTotals()
    written = focus.rows(acme, Period.between("2000-01-01", "2999-12-31"), totals, "day")
    next(written)
    settled_at(NOON + DAY, served(acme))
    credits.grant(acme.pk, Decimal(1), "meanwhile")
    assert [row["ChargeCategory"] for row in written] == ["Usage", "Purchase"]
    assert totals.reconciled


def test_books_that_do_not_add_up_are_said_not_to(acme: Account) -> None:
    record = settled_at(NOON, served(acme))
    Generation.objects.filter(pk=record.pk).update(cost=Decimal(1), prompt_cost=Decimal(1), completion_cost=Decimal(0))
    with pytest.raises(CommandError, match="do not add up"):
        export(acme)


def test_blocks_neither_repeat_nor_skip(acme: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "BLOCK_ROWS", 3)
    store(Holder.of(acme, "bulk").key, seconds(20), priced=False)
    for number in range(8):
        credits.grant(acme.pk, Decimal(1), f"top-up {number}")
    written = rows(acme)
    assert total(written, "ConsumedQuantity") == 20 * SMALL.total
    assert total(written, "BilledCost") == 18
    assert len({row["ChargeDescription"] for row in written if row["ChargeCategory"] == "Purchase"}) == 9


@pytest.mark.campaign
def test_memory_does_not_grow_with_the_records(acme: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "BLOCK_ROWS", 100)
    key, peaks = Holder.of(acme, "bulk").key, []
    for count in (300, 1700):
        store(key, seconds(count), priced=False)
        tracemalloc.start()
        try:
            for _ in focus.blocks(acme, Period.between("2000-01-01", "2999-12-31"), StatementTotals()):
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.5


# The command


def test_every_account_gets_a_file_beside_its_statement(acme: Account, tmp_path: Path) -> None:
    settled_at(NOON, served(acme))
    zenith = new_account("Zenith")
    for options in ((), ("--format", "focus", "--focus-version", "1.4", "--granularity", "hour")):
        call_command("export_usage", "--all", "--directory", str(tmp_path), *ALWAYS, *options, stdout=io.StringIO())
    names = {f"{account.pk}.{suffix}" for account in (acme, zenith) for suffix in ("csv", "focus.csv")}
    assert {path.name for path in tmp_path.iterdir()} == names
    text = (tmp_path / f"{acme.pk}.focus.csv").read_bytes().decode()
    assert text == export(acme, "--focus-version", "1.4", "--granularity", "hour")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--format", "focus", "--proofs"), "--proofs needs an ACCOUNT and --format jsonl."),
        (("--focus-version", "1.4"), "--focus-version needs --format focus."),
        (("--format", "jsonl", "--granularity", "hour"), "--granularity needs --format focus."),
        (("--format", "focus", "--focus-version", "1.3"), "--focus-version: invalid choice: '1.3'"),
        (("--format", "focus", "--granularity", "minute"), "--granularity: invalid choice: 'minute'"),
    ],
)
def test_an_option_that_does_not_fit_is_named(acme: Account, options: tuple[str, ...], expected: str) -> None:
    with pytest.raises(CommandError, match=re.escape(expected)):
        call_command("export_usage", "Acme", *ALWAYS, *options)
