"""`GET /v1/generations` lists the calling key's records, newest first, page by page."""

import uuid
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.core import signing

from billing.ledger import booking as ledger
from billing.ledger import credits
from billing.models import Generation
from catalogue.pricing import Usage
from tests import bills
from tests.billing.api import START, Holder, ids, listed, seconds, store
from tests.chat import answer, ask, stream
from tests.conftest import OpenAccount
from tests.envelope import refusal
from tests.factories import served
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer

PATH = "/v1/generations"
BAD_REQUEST = (400, "invalid_request_error", "invalid_request_error")


@pytest.fixture
def holder(db: None) -> Holder:
    return Holder.of()


def text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# Through the real server


def test_a_request_is_listed_with_the_usage_that_its_answer_had(account: Customer) -> None:
    answered = answer(account, "sim/test/echo/DEFRA")
    (record,) = account.http.get(PATH).json()["data"]
    metadata = answered["gateway_metadata"]
    created_at, duration = record.pop("created_at"), record.pop("duration_ms")
    assert record == {
        "generation_id": answered["id"],
        "model": "sim/test/echo/DEFRA",
        "provider": "sim",
        "region": "DEFRA",
        "usage": bills.recorded(answered["usage"]),
        "cost": answered["usage"]["cost"],
        "energy_wh": metadata["energy_wh"],
        "energy_source": "modelled",
        "grid_carbon_intensity_gco2_per_kwh": 344,
        "grid_kind": "annual",
        "grid_source": "A table",
        "grid_as_of": "2025-09-08",
        "carbon_gco2e": metadata["carbon_gco2e"],
        "interrupted": False,
        "usage_estimated": False,
        "routing_mode": "explicit",
    }
    assert isinstance(duration, int)
    assert 0 <= datetime.fromisoformat(created_at).timestamp() - answered["created"] < 30
    assert bills.exact(record["usage"]["remaining_balance"]) == bills.balance(account)


def test_a_stream_that_ended_early_is_listed_as_interrupted_and_estimated(account: Customer) -> None:
    broken = stream(account, "drop")
    (record,) = account.http.get(PATH).json()["data"]
    assert (record["generation_id"], record["interrupted"], record["usage_estimated"]) == (broken.id, True, True)
    assert record["cost"] > 0


def test_a_request_that_was_never_priced_is_listed_without_a_cost(account: Customer) -> None:
    assert ask(account, "bad-usage").status_code == 503
    (record,) = account.http.get(PATH).json()["data"]
    assert "cost" not in record
    assert set(record["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens", "currency"}


def test_an_automatic_choice_is_said_to_be_one(account: Customer) -> None:
    answered = answer(account, "auto/test/echo")
    (record,) = account.http.get(PATH).json()["data"]
    assert (record["requested_auto"], record["routing_mode"]) == ("auto/test/echo", "auto")
    assert record["model"] == answered["model"]
    assert "requested_alias" not in record


def test_cost_is_in_eur_whatever_the_account_pays_in(gateway: GatewayServer, open_account: OpenAccount) -> None:
    customer = open_account(gateway, currency="USD")
    answered = answer(customer, "echo")
    (record,) = customer.http.get(PATH).json()["data"]
    assert record["usage"]["currency"] == "USD"
    assert record["usage"] == bills.recorded(answered["usage"])
    assert bills.exact(record["usage"]["cost"]) == bills.exact(record["cost"]) * Decimal("1.25")


@pytest.mark.parametrize("path", [PATH, f"{PATH}/", f"/api{PATH}", f"/api{PATH}/"])
def test_it_has_four_addresses(account: Customer, path: str) -> None:
    reply = account.http.get(path)
    assert (reply.status_code, reply.json()) == (200, {"object": "list", "data": []})


def test_it_is_only_read(account: Customer) -> None:
    assert refusal(account.http.post(PATH, json={})).status == 405
    assert refusal(account.http.delete(PATH)).status == 405


def test_strangers_are_refused(gateway: GatewayServer) -> None:
    assert refusal(GatewaySession(gateway.origin).get(PATH)).code == "authentication_error"


def test_another_key_of_the_account_lists_its_own_records_alone(account: Customer) -> None:
    answered = answer(account, "echo")
    other = GatewaySession(account.gateway.origin, account.another_key("other"))
    assert other.get(PATH).json()["data"] == []
    assert listed(account.http.get(PATH).json()["data"]) == [answered["id"]]


def test_pages_through_a_server_hold_every_record_once(account: Customer) -> None:
    made = [answer(account, "echo")["id"] for _ in range(5)]
    first = account.http.get(PATH, params={"limit": 2}).json()
    answer(account, "echo")
    second = account.http.get(PATH, params={"limit": 2, "after": first["next_cursor"]}).json()
    last = account.http.get(PATH, params={"limit": 2, "after": second["next_cursor"]}).json()
    assert listed([*first["data"], *second["data"], *last["data"]]) == made[::-1]
    assert "next_cursor" not in last


# Pages


@pytest.mark.parametrize(("count", "limit"), [(0, 3), (1, 3), (3, 3), (4, 3), (6, 3), (7, 1)])
def test_the_cursor_is_absent_exactly_on_the_last_page(holder: Holder, count: int, limit: int) -> None:
    records = store(holder.key, seconds(count))
    pages = holder.pages(limit=limit)
    assert [record for page in pages for record in listed(page)] == ids(records)[::-1]
    assert len(pages) == max(1, -(-count // limit))


def test_records_of_one_moment_are_neither_repeated_nor_skipped(holder: Holder) -> None:
    store(holder.key, [START] * 10)
    found = [record for page in holder.pages(limit=3) for record in listed(page)]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 10


def test_a_page_holds_a_hundred_by_default(holder: Holder) -> None:
    store(holder.key, seconds(1001))
    assert len(holder.read(PATH)["data"]) == 100
    assert len(holder.read(PATH, limit=1000)["data"]) == 1000


def test_a_page_may_have_another_size_than_the_one_before(holder: Holder) -> None:
    records = ids(store(holder.key, seconds(10)))[::-1]
    first = holder.read(PATH, limit=2)
    rest = holder.read(PATH, limit=100, after=first["next_cursor"])
    assert listed(first["data"]) + listed(rest["data"]) == records


@pytest.mark.parametrize(
    "limit",
    [
        "0",
        "1001",
        "-1",
        "",
        " ",
        "5.0",
        "1e2",
        "1_0",
        " 5",
        "ten",
        "\N{ARABIC-INDIC DIGIT FIVE}",
        "99999999999999999999",
    ],
)
def test_a_limit_outside_is_refused_and_never_clamped(holder: Holder, limit: str) -> None:
    assert holder.refusal(PATH, limit=limit) == (*BAD_REQUEST, "limit")


# Bounds


def test_both_bounds_belong_to_the_listing(holder: Holder) -> None:
    records = store(holder.key, seconds(5))
    bounds = {"since": text(records[1].created_at), "until": text(records[3].created_at)}
    assert listed(holder.read(PATH, **bounds)["data"]) == ids(records[1:4])[::-1]
    assert [len(page) for page in holder.pages(**bounds, limit=2)] == [2, 1]


def test_a_records_own_time_is_an_exact_bound(holder: Holder) -> None:
    store(holder.key, [START + timedelta(microseconds=number) for number in (1, 2, 3)])
    newest, middle, oldest = holder.read(PATH)["data"]
    assert middle["created_at"] == "2026-10-01T12:00:00.000002Z"
    assert holder.read(PATH, since=middle["created_at"])["data"] == [newest, middle]
    assert holder.read(PATH, until=middle["created_at"])["data"] == [middle, oldest]


def test_digits_beyond_microseconds_move_no_bound(holder: Holder) -> None:
    store(holder.key, [START, START + timedelta(microseconds=1)])
    assert len(holder.read(PATH, since="2026-10-01T12:00:00.0000001Z")["data"]) == 1
    assert len(holder.read(PATH, since="2026-10-01T12:00:00.0000000Z")["data"]) == 2
    assert len(holder.read(PATH, until="2026-10-01T12:00:00.0000009Z")["data"]) == 1


@pytest.mark.parametrize(
    "moment", ["2026-10-01T12:00:00Z", "2026-10-01t14:00:00+02:00", "2026-10-01T06:30:00.000-05:30"]
)
def test_an_offset_names_the_same_moment(holder: Holder, moment: str) -> None:
    store(holder.key, [START - timedelta(microseconds=1), START])
    assert len(holder.read(PATH, since=moment)["data"]) == 1


def test_bounds_that_hold_nothing_are_an_empty_page(holder: Holder) -> None:
    store(holder.key, seconds(1))
    empty = holder.read(PATH, since="2026-10-02T00:00:00Z", until="2026-10-01T00:00:00Z")
    assert empty == {"object": "list", "data": []}


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize(
    "moment",
    [
        "",
        "yesterday",
        "2026-10-01",
        "2026-10-01T12:00:00",  # no offset
        "2026-10-01T12:00:00 02:00",  # a + that was not escaped
        "2026-10-01 12:00:00Z",
        "2026-10-01T12:00Z",
        "2026-02-30T12:00:00Z",
        "2026-10-01T24:00:01Z",
        "2026-10-01T12:00:00+0200",
        "2026-10-01T12:00:00+25:00",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "12026-10-01T12:00:00Z",
        "1759320000",
        "2026-10-01T12:00:00Z\n",
        "\N{ARABIC-INDIC DIGIT TWO}026-10-01T12:00:00Z",
    ],
)
def test_a_bound_that_is_no_moment_is_refused(holder: Holder, name: str, moment: str) -> None:
    assert holder.refusal(PATH, **{name: moment}) == (*BAD_REQUEST, name)


# Cursors


def cursor(holder: Holder, **query: str | int) -> str:
    found: str = holder.read(PATH, limit=1, **query)["next_cursor"]
    return found


def test_a_cursor_is_of_one_key(holder: Holder) -> None:
    store(holder.key, seconds(3))
    other = Holder.of(holder.account, "other")
    store(other.key, seconds(3))
    assert other.refusal(PATH, after=cursor(holder)) == (*BAD_REQUEST, "after")


SINCE, UNTIL = "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ({}, {"since": SINCE}),
        ({}, {"until": UNTIL}),
        ({"since": SINCE}, {"until": SINCE}),
        ({"since": SINCE, "until": UNTIL}, {"since": SINCE}),
        ({"since": SINCE, "until": UNTIL}, {"since": SINCE, "until": "2026-11-01T00:00:00.000001Z"}),
    ],
)
def test_a_cursor_is_of_one_set_of_bounds(holder: Holder, made: dict[str, str], used: dict[str, str]) -> None:
    store(holder.key, seconds(3))
    assert holder.refusal(PATH, **used, after=cursor(holder, **made)) == (*BAD_REQUEST, "after")


@pytest.mark.parametrize("bounds", [{}, {"since": SINCE}, {"until": UNTIL}, {"since": SINCE, "until": UNTIL}], ids=str)
def test_without_bounds_a_cursor_goes_on_within_those_of_its_first_page(holder: Holder, bounds: dict[str, str]) -> None:
    inside = store(holder.key, seconds(4))
    outside = [START.replace(month=9), START.replace(month=11, day=2)]
    store(holder.key, outside)
    pages = [holder.read(PATH, limit=2, **bounds)]
    while "next_cursor" in pages[-1]:
        pages.append(holder.read(PATH, limit=2, after=pages[-1]["next_cursor"]))
    found = [identifier for page in pages for identifier in listed(page["data"])]
    assert len(found) == 6 - len(bounds)
    assert set(ids(inside)) <= set(found)
    assert found == listed(holder.read(PATH, limit=100, **bounds)["data"])


def test_the_same_bound_may_be_written_otherwise(holder: Holder) -> None:
    records = store(holder.key, seconds(3))
    after = cursor(holder, since=SINCE)
    page = holder.read(PATH, since="2026-10-01T02:00:00.0+02:00", after=after)
    assert listed(page["data"]) == ids(records[:2])[::-1]


def test_a_cursor_that_somebody_wrote_is_refused(holder: Holder) -> None:
    store(holder.key, seconds(3))
    good = cursor(holder)
    forged = signing.dumps([START.isoformat(), uuid.uuid4().hex], key="a guess", salt="billing.generations")
    flipped = good[:5] + ("A" if good[5] != "A" else "B") + good[6:]
    for bad in (
        "",
        "null",
        "0",
        good[:-1],
        f"{good}x",
        flipped,
        forged,
        good.upper(),
        f" {good}",
        "\x00",
        "é:é:é",
        "x" * 501,
    ):
        assert holder.refusal(PATH, after=bad) == (*BAD_REQUEST, "after"), bad


def test_a_cursor_does_not_reveal_its_signing_key(holder: Holder) -> None:
    store(holder.key, seconds(3))
    assert str(holder.key.pk.hex) not in cursor(holder)


# Fields of a record


def test_what_is_unknown_is_absent_and_not_zero(holder: Holder) -> None:
    ledger.book(served(holder.account, priced=False), using="default")
    (record,) = holder.read(PATH)["data"]
    absent = {"cost", "energy_wh", "carbon_gco2e", "requested_auto", "requested_alias"}
    assert absent & set(record) == set()
    assert "remaining_balance" not in record["usage"]


def test_zero_is_not_unknown(holder: Holder) -> None:
    free = served(holder.account, Usage(uncached_prompt=0, completion=0), energy_wh=Decimal(0), carbon_gco2e=Decimal(0))
    ledger.book(free, using="default")
    (record,) = holder.read(PATH)["data"]
    assert (record["cost"], record["energy_wh"], record["carbon_gco2e"]) == (0, 0, 0)
    assert (record["usage"]["cost"], record["usage"]["remaining_balance"]) == (0, 100)


def test_an_alias_is_shown_as_it_was_asked_for(holder: Holder) -> None:
    store(holder.key, seconds(1), requested_alias="alias/fast", alias_id=uuid.uuid4())
    (record,) = holder.read(PATH)["data"]
    assert (record["requested_alias"], record["routing_mode"]) == ("alias/fast", "explicit")


def test_each_record_keeps_the_balance_that_it_left(holder: Holder) -> None:
    for _ in range(3):
        ledger.book(served(holder.account), using="default")
    credits.grant(holder.account.pk, Decimal(1), "more")
    balances = [record["usage"]["remaining_balance"] for record in holder.read(PATH)["data"]]
    assert balances == [99.99748, 99.99832, 99.99916]


def test_records_of_other_accounts_are_not_listed(holder: Holder) -> None:
    store(Holder.of().key, seconds(2))
    assert holder.read(PATH)["data"] == []
    assert Generation.objects.count() == 2
