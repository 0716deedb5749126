"""`recompute` finds each record whose terms are not what the catalogue had when its request was admitted."""

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import QuerySet
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from billing.ledger import booking as ledger
from billing.ledger.unsettled import terms_of
from billing.models import FROZEN, FrozenTerms, Generation, LedgerEntry, Wallet
from catalogue import changes, figure_history
from catalogue.models import ExchangeRate, FigureChange, GridSlot, Provider, Region
from catalogue.pricing import EnergyFactors, Price, Rates, Usage, cost_of, footprint_of
from catalogue.routing import snapshot
from catalogue.routing.routes import Snapshot
from gateway.ids import first_uuid7, uuid7
from gateway.money import from_units
from proof.recompute import TOLERANCE
from tests.catalogue import FIGURES
from tests.chat import answer, ask
from tests.conftest import OpenAccount, StartGateway
from tests.factories import forget_snapshot, mismatches, new_account, served
from tests.operations.test_verify_ledger import triggers_lifted
from tests.patience import eventually
from tests.seeding import PROVIDER, Entry, Seed, seed
from tests.servers.gateway import GatewayServer

__all__ = ["seed"]
pytestmark = [pytest.mark.django_db, pytest.mark.also_sqlite]

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
PARIS, WORLD, VECTORS, TIERED = "acme/a/chat/FRPAR", "acme/a/chat/global", "acme/a/vectors/FRPAR", "acme/a/tiered/FRPAR"
PROMPT, COMPLETION = "prompt_per_1m_tokens", "completion_per_1m_tokens"
USAGE = Usage(uncached_prompt=2000, cache_read=500, cache_write_5m=100, completion=300)


class Printed(NamedTuple):
    """Holds what the command printed, and whether it failed."""

    summary: list[str]
    mismatches: list[str]
    failed: bool


class Clock:
    """Sets the time of this process, and follows the catalogue as a worker does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOON
        monkeypatch.setattr(timezone, "now", lambda: self.now)

    def passes(self, time: timedelta = HOUR) -> None:
        self.now += time
        snapshot.refresh()
        figure_history.record(snapshot.current())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    forget_snapshot()
    yield Clock(monkeypatch)
    forget_snapshot()


@pytest.fixture
def files() -> Entry:
    """Returns a catalogue with prices in USD, tiers, cache prices, energy by kind of token, and an embedding."""
    dollars = {"currency": "USD", PROMPT: 0.5, COMPLETION: 1.5, "cache_read_per_1m_tokens": 0.05}
    tiers = [{"above_prompt_tokens": 1000, PROMPT: 1.2, COMPLETION: 1.8}]
    return {
        "exchange_rates": {"as_of": "2026-10-30", "base": "EUR", "rates": {"USD": 1.25}},
        "places": {"FRPAR": {"name": "Paris", "country": "FR", "eu": True, "eea": True}},
        "grid": {"FR": 44, "WORLD": 473, "source": "A table", "as_of": "2025-09-08"},
        "energy": {"a/chat": {**FIGURES}},
        "providers": [dict(PROVIDER)],
        "models": [
            {
                "provider": "acme",
                "id": "a/chat",
                "pricing": dollars,
                "regions": [{"locode": "global"}, {"locode": "FRPAR"}],
            },
            {
                "provider": "acme",
                "id": "a/tiered",
                "pricing": {"currency": "EUR", PROMPT: 0.6, COMPLETION: 1.2, "tiers": tiers},
                "regions": [{"locode": "FRPAR"}],
            },
            {
                "provider": "acme",
                "id": "a/vectors",
                "modality": "embedding",
                "pricing": {"currency": "EUR", PROMPT: 0.1},
                "regions": [{"locode": "FRPAR"}],
            },
        ],
    }


@pytest.fixture
def change(seed: Seed, files: Entry, clock: Clock) -> Callable[..., None]:
    """Seeds the files at this moment, and lets a second pass."""

    def run() -> None:
        seed(files, accept_price_jumps=True)
        clock.passes(SECOND)

    return run


@pytest.fixture
def serve(change: Callable[..., None], clock: Clock) -> Callable[..., Generation]:
    """Answers a request at the terms of this process's snapshot, an hour after what was before, and books it."""
    change()

    def run(account: Account, route: str = PARIS, *, usage: Usage = USAGE) -> Generation:
        clock.passes()
        found = snapshot.current()
        record = answered(account, found, route, usage, clock.now)
        clock.now += SECOND
        return booked(record, clock.now)

    return run


def figures_of(usage: Usage, price: Price, rates: Rates, energy: EnergyFactors) -> dict[str, Any]:
    """Returns a record's cost and footprint at these terms."""
    cost, footprint = cost_of(price, usage, rates), footprint_of(usage, energy)
    units = {"energy_wh_low": footprint.low_units, "energy_wh_high": footprint.high_units}
    units |= {"embodied_gco2e": footprint.embodied_units}
    return {
        "prompt_cost": cost.prompt,
        "completion_cost": cost.completion,
        "cost": cost.total,
        "cost_eur": cost.eur,
        "energy_wh": footprint.energy_wh,
        "carbon_gco2e": footprint.carbon_gco2e,
        "energy_source": footprint.source,
        **{name: None if each is None else from_units(each) for name, each in units.items()},
    }


def answered(account: Account, found: Snapshot, route: str, usage: Usage, moment: datetime) -> Generation:
    """Returns the unsaved record of a request that was admitted at this moment."""
    provider, creator, model, locode = route.split("/")
    offer = found.offers[provider, f"{creator}/{model}"]
    terms = terms_of(found, offer.routes[locode], account.currency)
    figures = figures_of(usage, terms.price, terms.rates, terms.energy)
    fields = {field.attname: field for field in Generation._meta.concrete_fields}
    columns = {name: fields[name].to_python(each) for name, each in terms.columns.items()}
    is_embedding = offer.modality == "embedding"
    kind = Generation.Endpoint.EMBEDDING if is_embedding else Generation.Endpoint.CHAT
    identifier = UUID(int=first_uuid7(moment).int | (uuid7().int & (1 << 80) - 1))
    return served(account, usage, **{**columns, **figures, "dialect": None}, id=identifier, endpoint=kind)


def booked(record: Generation, moment: datetime) -> Generation:
    """Books the record as of this moment, since PostgreSQL's clock is not the test's."""
    ledger.book(record, using="default")
    if connection.vendor == "postgresql":
        with triggers_lifted():
            Generation.objects.filter(pk=record.pk).update(created_at=moment)
            QuerySet(LedgerEntry).filter(generation=record).update(created_at=moment)
        record.created_at = moment
    return record


def recompute(clock: Clock, *options: str) -> Printed:
    """Runs the command a minute later."""
    clock.now += timedelta(minutes=1)
    out, err = io.StringIO(), io.StringIO()
    failed = False
    try:
        call_command("recompute", *options, stdout=out, stderr=err)
    except CommandError:
        failed = True
    return Printed(out.getvalue().splitlines(), err.getvalue().splitlines(), failed)


def clean(records: int) -> Printed:
    return Printed([f"recomputed {records} records: 0 mismatches"], [], False)


def reprice(record: Generation, **changed: Any) -> None:
    """Changes the frozen terms of a record and all that follows from them: its figures, its entry and the balances."""
    terms = FrozenTerms.of({name: getattr(record.frozen, name) for name in FROZEN} | changed)
    FrozenTerms.objects.bulk_create([terms], ignore_conflicts=True)
    usage = Usage(
        record.uncached_prompt_tokens,
        record.cache_read_tokens,
        record.cache_write_5m_tokens,
        record.cache_write_1h_tokens,
        record.completion_tokens,
    )
    kept: Any = terms
    figures = figures_of(usage, terms.price, Rates(kept.account_rate, kept.eur_rate), terms.energy_factors)
    dearer = figures["cost"] - record.cost
    entries: QuerySet[LedgerEntry] = QuerySet(LedgerEntry).filter(
        account=record.account
    )  # whose own manager updates nothing
    seq = entries.get(generation=record).seq
    with triggers_lifted():
        Generation.objects.filter(pk=record.pk).update(terms=terms, **figures)
        entries.filter(seq=seq).update(amount=-figures["cost"])
        for entry in entries.filter(seq__gte=seq):
            entries.filter(pk=entry.pk).update(balance_after=entry.balance_after - dearer)
            Generation.objects.filter(ledger_entry=entry).update(balance_after=entry.balance_after - dearer)
    wallet = Wallet.objects.get(account=record.account)
    Wallet.objects.filter(pk=wallet.pk).update(balance=wallet.balance - dearer)


def test_a_ledger_is_clean_through_every_kind_of_change(
    serve: Callable[..., Generation], change: Callable[..., None], files: Entry, clock: Clock
) -> None:
    euros, dollars = new_account(), new_account(currency="USD")

    def all_routes() -> None:
        for account in (euros, dollars):
            for route in (PARIS, WORLD, VECTORS, TIERED):
                serve(account, route)
            serve(account, TIERED, usage=Usage(uncached_prompt=900, completion=10))

    all_routes()
    chat, tiered = files["models"][:2]
    chat["pricing"] = {"currency": "USD", PROMPT: 0.7, COMPLETION: 1.5, "cache_write_per_1m_tokens": 0.9}
    tiered["pricing"]["tiers"][0] |= {"above_prompt_tokens": 2000, PROMPT: 1.3}
    change()
    all_routes()
    files["exchange_rates"]["rates"]["USD"] = 1.5
    change()
    all_routes()
    files["providers"][0]["pue"] = 1.5
    change()
    all_routes()
    files["energy"]["a/chat"]["wh"] = {"output": [0.0003, 0.0004, 0.0005], "prompt": 0.00002, "cached": 0}
    change()
    all_routes()
    files["grid"] |= {"FR": 50, "WORLD": 480}
    change()
    all_routes()
    files["models"][0]["regions"] = [{"locode": "global"}, {"locode": "FRPAR", "grid_carbon_intensity_gco2_per_kwh": 7}]
    change()
    all_routes()
    assert recompute(clock) == clean(70)
    assert recompute(clock, "--account", str(dollars.pk)) == clean(35)


def test_changes_in_the_admin_are_followed_too(
    serve: Callable[..., Generation], admin_client: Client, clock: Clock
) -> None:
    account = new_account()
    serve(account)
    rate = ExchangeRate.objects.get(currency="USD")
    page = reverse("admin:catalogue_exchangerate_change", args=["USD"])
    assert admin_client.post(page, {"currency": "USD", "units_per_eur": "1.4", "as_of": ""}).status_code == 302
    rate.refresh_from_db()
    assert rate.units_per_eur == Decimal("1.4")
    serve(account)
    provider = Provider.objects.get()
    provider.pue = Decimal("1.7")
    provider.save()
    serve(account)
    assert recompute(clock) == clean(3)


def test_the_grid_of_the_hour_is_followed(serve: Callable[..., Generation], clock: Clock) -> None:
    account = new_account()
    for hour, intensity in enumerate((30, 35, 40), 2):
        begin = NOON + hour * HOUR
        GridSlot.objects.create(
            zone="FR", start=begin, end=begin + HOUR, kind="measured", gco2_per_kwh=intensity, source="eco2mix"
        )
    changes.bump()
    records = [serve(account) for _ in range(9)]
    frozen = [record.frozen.grid_intensity for record in records]
    assert {30, 35, 40, 44} == set(frozen)
    GridSlot.objects.all().delete()  # they are kept for a week
    assert recompute(clock) == clean(9)
    wrong = records[frozen.index(35)]
    reprice(wrong, grid_intensity=30)
    printed = recompute(clock)
    assert printed.failed
    (line,) = printed.mismatches
    assert line.startswith(f'{wrong.public_id}: its grid: {{"gco2e_per_kwh": "30", ')
    assert '"gco2e_per_kwh": "35"' in line.partition("the catalogue had")[2]


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"prompt_price": Decimal("0.6")}, "prices"),
        ({"cache_read_price": None}, "prices"),
        ({"price_tiers": [{"above_prompt_tokens": 10, "prompt": "2", "completion": "2"}]}, "prices"),
        ({"account_rate": Decimal("0.81")}, "exchange rates"),
        ({"eur_rate": Decimal("0.79")}, "exchange rates"),
        ({"energy_figures": None, "energy_per_token_wh": Decimal("0.00001")}, "energy"),
        ({"grid_intensity": 43}, "grid"),
        ({"grid_basis": {"kind": "measured", "source": "", "as_of": ""}}, "grid"),
    ],
)
def test_terms_that_the_catalogue_never_had_are_named(
    serve: Callable[..., Generation], clock: Clock, changed: dict[str, Any], part: str
) -> None:
    account = new_account()
    serve(account)
    record = serve(account)
    serve(account)
    reprice(record, **changed)
    assert mismatches() == []  # to verify_ledger the books are in order
    printed = recompute(clock)
    assert printed.failed
    assert printed.summary == ["recomputed 3 records: 1 mismatches"]
    (line,) = printed.mismatches
    assert line.startswith(f"{record.public_id}: its {part}: ")
    assert f"since {NOON:%Y-%m-%dT%H:%M:}" in line


def test_a_price_of_another_time_is_named(
    serve: Callable[..., Generation], change: Callable[..., None], files: Entry, clock: Clock
) -> None:
    account = new_account()
    before = serve(account, TIERED)
    clock.passes()
    files["models"][1]["pricing"][PROMPT] = 0.9
    change()
    after = serve(account, TIERED)
    assert recompute(clock) == clean(2)
    reprice(before, prompt_price=after.frozen.prompt_price)
    assert [line.split(":")[0] for line in recompute(clock).mismatches] == [before.public_id]


def test_a_wrong_figure_from_right_terms_is_named(serve: Callable[..., Generation], clock: Clock) -> None:
    record = serve(new_account())
    with triggers_lifted():
        Generation.objects.filter(pk=record.pk).update(completion_cost=Decimal(1), carbon_gco2e=Decimal(2))
    cost, carbon = recompute(clock).mismatches
    assert cost.startswith(f"{record.public_id}: completion cost 1.00, its tokens and frozen prices give 0.")
    assert carbon.startswith(f"{record.public_id}: carbon in g 2.00, its tokens and frozen factors give 0.")


def test_a_stream_is_billed_by_any_of_the_terms_in_its_time(
    serve: Callable[..., Generation], change: Callable[..., None], files: Entry, seed: Seed, clock: Clock
) -> None:
    account = new_account()
    clock.passes()
    old = snapshot.current()
    admitted_at = clock.now
    clock.now += timedelta(minutes=10)
    files["models"][0]["pricing"][PROMPT] = 0.9
    files["exchange_rates"]["rates"]["USD"] = 1.5
    files["grid"]["FR"] = 50
    change()
    clock.now += timedelta(minutes=10)
    booked(answered(account, old, PARIS, USAGE, admitted_at), clock.now)
    clock.now += HOUR
    late = booked(answered(account, old, PARIS, USAGE, clock.now), clock.now)
    printed = recompute(clock)
    assert [line.split(": its ")[1].split(":")[0] for line in printed.mismatches] == [
        "prices",
        "exchange rates",
        "grid",
    ]
    assert {line.split(":")[0] for line in printed.mismatches} == {late.public_id}


def test_a_change_may_be_recorded_and_followed_some_seconds_late(
    serve: Callable[..., Generation], change: Callable[..., None], files: Entry, clock: Clock
) -> None:
    account = new_account()
    clock.passes()
    old = snapshot.current()
    files["grid"]["FR"] = 50
    files["models"][0]["pricing"][PROMPT] = 0.9
    change()
    clock.now += timedelta(seconds=5)
    booked(answered(account, old, PARIS, USAGE, clock.now), clock.now)
    assert recompute(clock) == clean(1)


def test_records_from_before_the_history_are_counted(serve: Callable[..., Generation], clock: Clock) -> None:
    record = serve(new_account())
    assert recompute(clock) == clean(1)
    FigureChange.objects.filter(since__lt=clock.now).update(since=record.created_at + 2 * TOLERANCE)
    assert recompute(clock) == Printed(
        [
            "recomputed 1 records: 0 mismatches",
            "older than the history of their exchange rates: 1 records",
            "older than the history of their energy: 1 records",
            "older than the history of their grid: 1 records",
        ],
        [],
        False,
    )


def test_a_route_that_the_catalogue_did_not_have_is_named(serve: Callable[..., Generation], clock: Clock) -> None:
    record = serve(new_account())
    with triggers_lifted():
        Generation.objects.filter(pk=record.pk).update(model="a/dearest")
    printed = recompute(clock)
    assert [line.rpartition("; ")[2] for line in printed.mismatches] == [
        f"the catalogue had none since {NOON + SECOND:%Y-%m-%dT%H:%M:%S.%fZ}"
    ] * 2


def test_a_route_that_comes_back_has_only_its_new_prices(
    serve: Callable[..., Generation], seed: Seed, files: Entry, clock: Clock
) -> None:
    account = new_account()
    serve(account)
    seed({**files, "models": files["models"][1:]}, prune=True)
    clock.passes()
    del files["models"][0]["pricing"]["cache_read_per_1m_tokens"]
    seed(files)
    clock.passes(SECOND)
    assert serve(account).frozen.cache_read_price is None
    assert recompute(clock) == clean(2)


def test_history_has_only_what_has_changed(change: Callable[..., None], clock: Clock, files: Entry) -> None:
    change()
    change()
    clock.passes()
    subjects = sorted(FigureChange.objects.values_list("subject", flat=True))
    routes = [f"route/{route}" for route in (PARIS, WORLD, TIERED, VECTORS)]
    assert subjects == sorted(["grid/annual/FR", "grid/annual/WORLD", "rate/USD", *routes])
    files["exchange_rates"]["rates"]["USD"] = 1.5
    change()
    newest = FigureChange.objects.latest("id")
    assert (newest.subject, newest.value, newest.since) == ("rate/USD", {"units_per_eur": "1.50"}, clock.now)


def test_a_snapshot_that_is_not_the_newest_records_nothing(
    change: Callable[..., None], files: Entry, seed: Seed
) -> None:
    change()
    old = snapshot.current()
    files["exchange_rates"]["rates"]["USD"] = 1.5
    seed(files)
    assert figure_history.record(old) is False


def published(client: Client, path: str = "/log/catalogue") -> list[Entry]:
    return [json.loads(line) for line in client.get(path).getvalue().splitlines()]


def test_anybody_can_read_the_history_and_compare_a_leaf(
    serve: Callable[..., Generation], change: Callable[..., None], files: Entry, clock: Clock, client: Client
) -> None:
    files["models"][0]["pricing"][PROMPT] = 0.9
    change()
    lines = published(client)
    prices = [line["value"] for line in lines if line["subject"] == f"price/{PARIS}"]
    assert [price["prompt"] for price in prices] == ["0.50", "0.90"]
    assert prices[1] == {"currency": "USD", "prompt": "0.90", "completion": "1.50", "cache_read": "0.05"}
    (tiered,) = [line for line in lines if line["subject"] == f"price/{TIERED}"]
    assert tiered["value"]["tiers"] == [{"above_prompt_tokens": "1000", "prompt": "1.20", "completion": "1.80"}]
    (route,) = [line for line in lines if line["subject"] == f"route/{PARIS}"]
    assert route["since"] == "2026-11-22T12:00:01.000000Z"
    assert route["value"]["grid_of"] == ["grid/hourly/FR", "grid/annual/FR"]
    assert route["value"]["energy"]["wh_per_token"] == {"output": "0.0002", "prompt": "0.00002", "cached": "0.0000002"}
    assert {"subject": "rate/USD", "since": route["since"], "value": {"units_per_eur": "1.25"}} in lines


def test_only_what_is_listed_is_published(seed: Seed, files: Entry, clock: Clock, client: Client) -> None:
    files["providers"] += [PROVIDER | {"slug": "hidden", "credential_env": "HIDDEN_KEY"}]
    files["models"] += [
        {**files["models"][0], "provider": "hidden"},
        {**files["models"][0], "id": "a/secret", "state": "disabled"},
    ]
    seed(files)
    clock.passes(SECOND)
    assert Region.objects.filter(model__provider__slug="hidden").exists()
    text = client.get("/log/catalogue").getvalue().decode()
    assert PARIS in text
    for private in ("hidden", "HIDDEN_KEY", "a/secret", "base_url", "acme.example"):
        assert private not in text


def test_the_hours_of_the_grid_are_published_by_day(
    serve: Callable[..., Generation], clock: Clock, client: Client
) -> None:
    GridSlot.objects.create(zone="FR", start=NOON, end=NOON + HOUR, kind="measured", gco2_per_kwh=30, source="eco2mix")
    changes.bump()
    clock.passes(SECOND)
    assert not any(line["subject"].startswith("grid/hourly") for line in published(client))
    (line,) = published(client, "/log/catalogue/grid/2026-11-22")
    assert (line["subject"], line["value"]["gco2e_per_kwh"]) == ("grid/hourly/FR", "30")
    assert published(client, "/log/catalogue/grid/2026-11-21") == []
    today, earlier = (client.get(f"/log/catalogue/grid/2026-11-{day}")["Cache-Control"] for day in (22, 20))
    assert (today, earlier) == ("public, max-age=5", "public, max-age=31536000, immutable")
    for day in ("2026-11-23", "2026-11-31"):
        assert client.get(f"/log/catalogue/grid/{day}").status_code == 404


def test_an_unchanged_history_is_not_sent_again(change: Callable[..., None], client: Client, files: Entry) -> None:
    change()
    first = client.get("/log/catalogue")
    assert client.get("/log/catalogue", headers={"If-None-Match": first["ETag"]}).status_code == 304
    files["models"][0]["pricing"][PROMPT] = 0.9
    change()
    assert client.get("/log/catalogue", headers={"If-None-Match": first["ETag"]}).status_code == 200


def test_the_history_is_sent_again_once_another_route_is_listed(
    change: Callable[..., None], client: Client, files: Entry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files["providers"].append(PROVIDER | {"slug": "later", "credential_env": "LATER_KEY"})
    files["models"].append({**files["models"][0], "provider": "later"})
    change()
    first = client.get("/log/catalogue")
    before = first.getvalue()
    monkeypatch.setenv("LATER_KEY", "of this test")
    forget_snapshot()
    clock.passes(SECOND)
    again = client.get("/log/catalogue", headers={"If-None-Match": first["ETag"]})
    assert again.status_code == 200
    assert b"later/" in again.getvalue()
    assert b"later/" not in before


RECORDED = "SELECT count(*) > 0 FROM catalogue_figurechange WHERE subject = 'rate/USD'"
NOW = """
from datetime import timedelta
from django.core.management import call_command
import proof.recompute
proof.recompute.LEFT_OUT = timedelta(0)
call_command("recompute")
"""


def test_what_a_gateway_serves_is_clean(start_gateway: StartGateway, open_account: OpenAccount) -> None:
    gateway: GatewayServer = start_gateway()
    assert eventually(lambda: gateway.query(RECORDED)[0][0])
    for currency in ("EUR", "USD"):
        customer = open_account(gateway, currency=currency)
        for slug in ("echo", "cached", "cache-write", "auto/test/echo", "sim/test/dollars"):
            answer(customer, slug)
        assert ask(customer, "chunks", stream=True).status_code == 200
    done = gateway.manage_subprocess("shell", "--command", NOW).ok()
    assert "recomputed 12 records: 0 mismatches" in done
    assert "older" not in done
