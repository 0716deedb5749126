"""Every ending is billed once and exactly, and nothing is billed if nothing was delivered (docs/api.md#endings)."""

import contextlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
import requests

from tests import bills
from tests.chat import HELLO_COST, PATH, Stream, answer, ask, question, stream
from tests.conftest import OpenAccount
from tests.envelope import checked, message, refusal
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

CREDIT = Decimal(100)
UPSTREAM_FAILED = (503, "provider_error", "provider_error", None)
TIMED_OUT = (504, "provider_unavailable", "provider_timeout", None)
UNRESOLVABLE = (503, "provider_error", "provider_error", None)
BROKE = (402, "invalid_request_error", "insufficient_credits", None)

NO_RETRY_STATUSES = (401, 403, 404)
RETRY_STATUSES = (408, 409, 425, 429, 500, 502, 503, 529)

whole_or_streamed = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


def the_record(customer: Customer) -> bills.Record:
    """Returns the account's only record, whose cost was debited once."""
    (record,) = bills.records(customer)
    assert bills.debits(customer) == ([] if record.cost is None else [record.cost])
    assert bills.balance(customer) == CREDIT - sum(bills.debits(customer))
    return record


# --- What is published is what is booked


def test_a_whole_answer_publishes_what_was_booked(account: Customer) -> None:
    result = answer(account, "echo")
    record = bills.record_of(account.gateway, result["id"])
    assert the_record(account) == record
    assert (record.ending, record.interrupted, record.usage_estimated) == ("finished", False, False)
    assert (record.prompt_tokens, record.completion_tokens) == (2, 2)
    assert record.cost == bills.exact(result["usage"]["cost"]) == Decimal(HELLO_COST)
    assert bills.balance(account) == record.balance_after == bills.exact(result["usage"]["remaining_balance"])


def test_a_stream_publishes_what_was_booked(account: Customer) -> None:
    streamed = stream(account, "chunks")
    usage = streamed.chunks[-1]["usage"]
    record = the_record(account)
    assert record == bills.record_of(account.gateway, streamed.id)
    assert (record.ending, record.interrupted, record.usage_estimated) == ("finished", False, False)
    assert (record.prompt_tokens, record.completion_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert record.cost == bills.exact(usage["cost"])
    assert record.balance_after == bills.exact(usage["remaining_balance"])
    assert record.first_token_ms is not None
    assert record.first_token_ms <= record.duration_ms


def test_200_requests_at_once_leave_exactly_what_they_published(account: Customer) -> None:
    with ThreadPoolExecutor(max_workers=200) as pool:
        usages = list(pool.map(lambda number: usage_of_one(account, streams=number % 2 == 0), range(200)))
    costs = [bills.exact(usage["cost"]) for usage in usages]
    balances = {bills.exact(usage["remaining_balance"]) for usage in usages}
    assert bills.balance(account) == CREDIT - sum(costs) == min(balances)
    assert len(balances) == 200
    assert Counter(bills.debits(account)) == Counter(costs)


def usage_of_one(customer: Customer, *, streams: bool) -> dict[str, float]:
    """Returns the usage of a request on a connection of its own."""
    headers = {"Authorization": f"Bearer {customer.key}"}
    reply = requests.post(
        customer.gateway.origin + PATH, json=question("echo", stream=streams), headers=headers, timeout=60
    )
    last = Stream.of(reply).chunks[-1] if streams else reply.json()
    usage: dict[str, float] = last["usage"]
    return usage


# --- The balance


@whole_or_streamed
def test_without_credit_nothing_reaches_the_upstream(
    gateway: GatewayServer, open_account: OpenAccount, simulator: Simulator, streams: bool
) -> None:
    poor = open_account(gateway, credit=None)
    calls = simulator.stats()["calls"]
    reply = ask(poor, "echo", stream=streams)
    assert refusal(reply) == BROKE
    assert reply.headers["x-should-retry"] == "false"
    assert simulator.stats()["calls"] == calls
    assert bills.untouched(poor, credit=0)


def test_the_last_credit_may_be_overdrawn_by_one_request_until_more_is_granted(
    gateway: GatewayServer, open_account: OpenAccount
) -> None:
    customer = open_account(gateway, credit="0.0000001")
    assert bills.exact(answer(customer, "echo")["usage"]["remaining_balance"]) == Decimal("-0.0000035")
    assert refusal(ask(customer, "echo")) == BROKE
    gateway.manage("grant_credit", customer.name, "0.0000035", "--reference", "to zero").ok()
    assert refusal(ask(customer, "echo")) == BROKE
    gateway.manage("grant_credit", customer.name, "1", "--reference", "above zero").ok()
    assert bills.exact(answer(customer, "echo")["usage"]["remaining_balance"]) == 1 - Decimal(HELLO_COST)


# --- Nothing delivered, nothing billed


@pytest.mark.parametrize("code", [*NO_RETRY_STATUSES, *RETRY_STATUSES])
@whole_or_streamed
def test_an_upstreams_failure_is_a_503_that_costs_nothing(account: Customer, code: int, streams: bool) -> None:
    reply = ask(account, f"status-{code}", stream=streams)
    assert refusal(reply) == UPSTREAM_FAILED
    assert ("refuses the gateway itself" if code == 401 else str(code)) in message(reply)
    assert "'sim'" in message(reply)
    assert reply.headers.get("x-should-retry") == ("false" if code in NO_RETRY_STATUSES else None)
    assert reply.headers.get("Retry-After") == ("7" if code == 429 else None)
    assert bills.untouched(account)


@whole_or_streamed
@pytest.mark.parametrize("code", [400, 422])
def test_an_upstreams_refusal_is_a_400_that_costs_nothing(account: Customer, code: int, streams: bool) -> None:
    reply = ask(account, f"status-{code}", stream=streams)
    assert refusal(reply)[:2] == (400, "invalid_request_error")
    assert bills.untouched(account)


@pytest.mark.parametrize(
    ("code", "words"), [(404, "does not exist"), (422, "could not be processed"), (429, "Rate limit reached")]
)
def test_an_upstreams_words_are_quoted(account: Customer, code: int, words: str) -> None:
    assert words in message(ask(account, f"status-{code}"))


@pytest.mark.parametrize("code", [401, 403])
def test_an_upstreams_words_about_its_key_are_not(account: Customer, code: int) -> None:
    assert "abcd" not in ask(account, f"status-{code}").text


@pytest.mark.parametrize(
    ("slug", "streams"),
    [
        *((f"{slug}-at-once", streams) for slug in ("drop", "malformed", "error-frame") for streams in (False, True)),
        *((slug, streams) for slug in ("empty", "html", "redirect") for streams in (False, True)),
        *((slug, False) for slug in ("drop", "malformed", "error-frame", "truncated")),
    ],
)
def test_an_upstream_that_breaks_before_any_output_is_a_503_that_costs_nothing(
    account: Customer, slug: str, streams: bool
) -> None:
    reply = ask(account, slug, stream=streams, max_tokens=16)
    assert refusal(reply) == UPSTREAM_FAILED
    assert "'sim'" in message(reply)
    assert bills.untouched(account)


@pytest.mark.parametrize(
    ("slug", "streams"), [("slow-first-byte", False), ("slow-first-byte", True), ("stall-at-once", True)]
)
def test_an_upstream_that_never_begins_is_a_504_that_names_the_budget(
    hurried_account: Customer, slug: str, streams: bool
) -> None:
    reply = ask(hurried_account, slug, stream=streams, max_tokens=16)
    assert refusal(reply) == TIMED_OUT
    assert "first-byte" in message(reply)
    assert "Retry-After" not in reply.headers
    assert "x-should-retry" not in reply.headers
    assert bills.untouched(hurried_account)


def test_an_upstream_that_sends_no_output_in_time_is_a_504(hurried_account: Customer) -> None:
    """The upstream sends a first chunk with its role, within the first-byte timeout, and then nothing."""
    reply = ask(hurried_account, "pause-after-role", stream=True)
    assert refusal(reply) == TIMED_OUT
    assert bills.untouched(hurried_account)


# --- Broken off in mid-stream


@pytest.mark.parametrize(
    ("slug", "expected"),
    [
        ("drop", "closed the connection before completing the response"),
        ("malformed", "returned invalid JSON"),
        ("error-frame", "reported an error: The server had an error while processing your request"),
        ("truncated", "broke off in mid-stream"),
    ],
)
def test_a_broken_stream_ends_in_one_error_without_done_and_bills_what_was_delivered(
    account: Customer, slug: str, expected: str
) -> None:
    streamed = stream(account, slug)
    assert not streamed.done
    assert [checked(error) for error in streamed.errors] == [("provider_error", "provider_error", None)]
    assert streamed.errors[0]["message"] == f"Provider 'sim' {expected}. What was delivered is billed."
    assert streamed.frames[-1] == {"error": streamed.errors[0]}
    assert streamed.text == "hello there"
    record = the_record(account)
    assert (record.ending, record.interrupted, record.usage_estimated) == ("upstream_broke", True, True)
    assert record.cost is not None
    assert record.cost > 0
    assert record.completion_tokens > 0


def test_a_broken_stream_has_neither_a_finish_nor_usage(account: Customer) -> None:
    streamed = stream(account, "drop")
    assert {choice["finish_reason"] for chunk in streamed.chunks for choice in chunk["choices"]} == {None}
    assert [chunk for chunk in streamed.chunks if "usage" in chunk or "gateway_metadata" in chunk] == []


@pytest.mark.parametrize("slug", ["no-done", "stall-after-finish"])
def test_a_stream_is_complete_once_every_choice_has_finished(hurried_account: Customer, slug: str) -> None:
    streamed = stream(hurried_account, slug)
    assert (streamed.done, streamed.errors) == (True, [])
    assert streamed.chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert (the_record(hurried_account).ending, the_record(hurried_account).interrupted) == ("finished", False)


# --- Stalled


@pytest.mark.parametrize("slug", ["stall", "slow-chunks"], ids=["idle", "overall"])
@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}], ids=["plain", "asks for usage"])
def test_a_stall_ends_with_an_empty_delta_usage_and_done(
    hurried_account: Customer, slug: str, options: dict[str, object]
) -> None:
    streamed = stream(hurried_account, slug, **options)
    assert (streamed.done, streamed.errors) == (True, [])
    last = streamed.chunks[-1]
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
    assert {"usage", "gateway_metadata"} <= set(last)
    record = the_record(hurried_account)
    assert (record.ending, record.interrupted, record.usage_estimated) == ("stalled", True, True)
    assert record.cost == bills.exact(last["usage"]["cost"])
    assert record.balance_after == bills.exact(last["usage"]["remaining_balance"])


def test_a_stall_bills_only_what_was_delivered(hurried_account: Customer) -> None:
    streamed = stream(hurried_account, "stall")
    tokens = streamed.chunks[-1]["usage"]["completion_tokens"]
    assert streamed.text == "hello there"
    assert 0 < tokens <= len(streamed.text)


def test_comments_are_no_first_byte(hurried_account: Customer) -> None:
    """Comments arrive every 0.2 s for a second: the first byte of data is later than its timeout."""
    reply = ask(hurried_account, "pings", stream=True)
    assert refusal(reply) == TIMED_OUT
    assert bills.untouched(hurried_account)


# --- Usage that is missing, late or false


@pytest.mark.parametrize(("slug", "streams"), [("no-usage", False), ("no-usage", True), ("never-usage", True)])
def test_without_the_upstreams_usage_it_is_estimated_and_the_record_says_so(
    hurried_account: Customer, slug: str, streams: bool
) -> None:
    usage = (stream(hurried_account, slug).chunks[-1] if streams else answer(hurried_account, slug))["usage"]
    record = the_record(hurried_account)
    assert (record.ending, record.interrupted, record.usage_estimated) == ("finished", False, True)
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (record.prompt_tokens, record.completion_tokens)
    assert record.cost == bills.exact(usage["cost"])
    assert min(record.prompt_tokens, record.completion_tokens) > 0


@pytest.mark.parametrize("slug", ["late-usage", "usage-on-finish", "usage-every-chunk"])
def test_usage_counts_wherever_in_the_stream_it_comes(account: Customer, slug: str) -> None:
    streamed = stream(account, slug)
    assert streamed.chunks[-1]["usage"]["total_tokens"] == 4
    assert the_record(account).cost == Decimal(HELLO_COST)
    assert not the_record(account).usage_estimated


@pytest.mark.parametrize("slug", ["bad-usage", "negative-usage", "fraction-usage"])
def test_a_whole_answer_whose_usage_contradicts_itself_is_withheld_and_recorded_without_a_cost(
    account: Customer, slug: str
) -> None:
    reply = ask(account, slug, max_tokens=16)
    assert refusal(reply) == UNRESOLVABLE
    assert reply.headers["x-should-retry"] == "false"
    kept = account.http.get(f"/v1/generation/{reply.headers['X-Generation-Id']}")
    assert "cost" not in kept.json()
    record = the_record(account)
    assert (record.ending, record.cost, record.balance_after) == ("cost_unresolvable", None, None)
    assert (record.completion_tokens, record.usage_estimated) == (3, True)  # "hello there", which was not delivered


@pytest.mark.parametrize("slug", ["bad-usage", "negative-usage", "fraction-usage"])
def test_a_stream_whose_usage_contradicts_itself_ends_in_one_error_without_done(account: Customer, slug: str) -> None:
    streamed = stream(account, slug)
    assert not streamed.done
    assert [checked(error) for error in streamed.errors] == [("provider_error", "cost_unresolvable", None)]
    assert "error" in streamed.frames[-1]
    assert streamed.text == "hello there"
    assert [chunk for chunk in streamed.chunks if "usage" in chunk or "gateway_metadata" in chunk] == []
    record = the_record(account)
    assert (record.ending, record.cost, record.usage_estimated) == ("cost_unresolvable", None, True)


def test_a_model_is_not_blocked_by_its_contradictions(account: Customer) -> None:
    stream(account, "bad-usage")
    assert stream(account, "bad-usage").text == "hello there"


def test_a_wrong_total_is_recomputed(account: Customer) -> None:
    assert answer(account, "wrong-total")["usage"]["total_tokens"] == 4
    assert the_record(account).cost == Decimal(HELLO_COST)


# --- The client leaves


@pytest.mark.parametrize(
    ("slug", "behaviour"), [("stall", "stall:2"), ("slow-chunks", "chunks:50:0.1"), ("endless", "endless")]
)
def test_a_client_that_leaves_in_mid_stream_stops_the_upstream_and_pays_for_what_it_got(
    account: Customer, simulator: Simulator, slug: str, behaviour: str
) -> None:
    cut = simulator.stats(behaviour)["cut"]
    with contextlib.closing(account.http.post(PATH, json=question(slug, stream=True), stream=True)) as reply:
        lines = reply.iter_lines()
        assert next(lines).startswith(b"data: {")
    assert eventually(lambda: simulator.stats(behaviour)["cut"] == cut + 1)
    assert eventually(lambda: bills.records(account) != [])
    record = the_record(account)
    assert (record.ending, record.interrupted, record.usage_estimated) == ("client_left", True, True)
    assert record.cost is not None
    assert record.cost > 0


@whole_or_streamed
def test_a_client_that_leaves_before_any_output_stops_the_upstream_and_pays_nothing(
    account: Customer, simulator: Simulator, streams: bool
) -> None:
    before = simulator.stats("slow-first-byte:5")
    with pytest.raises(requests.ReadTimeout):
        account.http.post(PATH, json=question("slow-first-byte", stream=streams, max_tokens=16), timeout=0.3)
    assert simulator.stats("slow-first-byte:5")["calls"] == before["calls"] + 1
    assert eventually(lambda: simulator.stats("slow-first-byte:5")["cut"] == before["cut"] + 1)
    answer(account, "echo")
    assert [record.ending for record in bills.records(account)] == ["finished"]


def test_a_client_that_leaves_frees_the_gateway_for_others(account: Customer, simulator: Simulator) -> None:
    replies = [account.http.post(PATH, json=question("stall", stream=True), stream=True) for _ in range(20)]
    for reply in replies:
        reply.close()
    assert eventually(lambda: len(bills.records(account)) == 20)
    assert eventually(lambda: simulator.stats("stall:2")["open"] == 0)
    assert {record.ending for record in bills.records(account)} == {"client_left"}
