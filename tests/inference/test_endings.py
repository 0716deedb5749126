"""Every ending is right on every way through: endpoint x dialect x kind of answer (docs/api.md#endings)."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
import requests

from billing.ledger.endings import ENDINGS
from billing.models import Generation
from tests import bills
from tests.chat import Stream
from tests.envelope import checked
from tests.inference.shapes import ALL_BEHAVIOURS, MODES, WAYS, Way, post
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.simulator import Simulator

UPSTREAM_BROKE = "provider_error"
IN_STREAM_UNRESOLVABLE = "cost_unresolvable"
TIMED_OUT = "provider_timeout"


class Tokens(NamedTuple):
    """Holds the tokens that a record bills."""

    prompt: int
    completion: int


COUNTED = Tokens(2, 2)  # "hello there", in and out


@dataclass(frozen=True)
class Expected:
    """Holds the expected row of an ending.

    `ending` is None if there is no record and no debit. `cut` tells whether the gateway closed the upstream.
    """

    status: int = 200
    code: str | None = None
    ending: str | None = "finished"
    tokens: Tokens | None = COUNTED
    interrupted: bool = False
    estimated: bool = False
    cut: bool | None = False
    done: bool = True
    text: str | None = "hello there"
    priced: bool = True


NOTHING = Expected(ending=None, tokens=None, cut=None, done=False, text=None)
FINISHED = Expected()
REFUSED = replace(NOTHING, status=503, code=UPSTREAM_BROKE)


def estimated(way: Way, completion: int) -> Tokens:
    return Tokens(way.estimated_prompt, completion)


def broke(way: Way) -> Expected:
    """Returns the row of a broken stream: the delivered 11 bytes are 3 tokens; an error frame ends it, not `[DONE]`."""
    return Expected(
        code=UPSTREAM_BROKE,
        ending="upstream_broke",
        tokens=estimated(way, 3),
        interrupted=True,
        estimated=True,
        cut=None,
        done=False,
    )


def finished_without_usage(way: Way) -> Expected:
    return Expected(tokens=estimated(way, 3), estimated=True, cut=None)


def unresolvable(way: Way, mode: str) -> Expected:
    """Returns the row of a record without a cost, whose estimate counts what had arrived before the contradiction."""
    anthropic_at_start = way.models == "simanthropic/claude"
    prompt = WAYS["chat-openai" if way.is_chat else "text-openai"].estimated_prompt
    tokens = Tokens(prompt, 0 if anthropic_at_start and mode != "whole" else 3)
    row = replace(REFUSED, ending="cost_unresolvable", tokens=tokens, estimated=True, priced=False)
    if mode != "streamed" or anthropic_at_start:
        return row
    return replace(row, status=200, code=IN_STREAM_UNRESOLVABLE, text="hello there")


def expected(way: Way, mode: str, slug: str) -> Expected:
    """Returns the row of an ending that needs no waiting."""
    match slug, mode:
        case "echo" | "late-usage" | "usage-every-chunk" | "close-delimited" | "no-done", _:
            return FINISHED
        case "never-usage" | "stall-after-finish", "streamed" | "aggregated":
            return replace(finished_without_usage(way), cut=True)
        case "no-usage", _:
            row = finished_without_usage(way)
            prompt = WAYS["chat-openai" if way.is_chat else "text-openai"].estimated_prompt
            return replace(row, tokens=Tokens(prompt, 3))
        case "drop" | "malformed" | "error-frame" | "truncated", "streamed":
            return broke(way)
        case "bad-usage", _:
            return unresolvable(way, mode)
        case _:
            return REFUSED


AT_ONCE = ("drop-at-once", "malformed-at-once", "error-frame-at-once")
QUICK = (
    *("echo", "late-usage", "usage-every-chunk", "close-delimited", "no-done", "no-usage", "bad-usage"),
    *("drop", "malformed", "error-frame", "truncated", *AT_ONCE),
)
# On a completion model, chat echoes the labelled prompt, whose tokens differ from the table's.
TABLE_WAYS = [way for way in WAYS.values() if way.name != "chat-on-completion"]
# Whole answers do not have these: they are like `echo`, or like the slug without `-at-once`.
OF_STREAMS = ("late-usage", "usage-every-chunk", "no-done", "malformed-at-once", "error-frame-at-once")
QUICK_ROWS = [
    (way, mode, slug)
    for way in TABLE_WAYS
    for mode in MODES
    for slug in QUICK
    if mode != "whole" or slug not in OF_STREAMS
]


@pytest.mark.parametrize(
    ("way", "mode", "slug"), [pytest.param(*row, id=f"{row[2]}-{row[1]}-{row[0].name}") for row in QUICK_ROWS]
)
def test_an_ending_costs_and_says_what_the_table_says(
    account: Customer, simulator: Simulator, way: Way, mode: str, slug: str
) -> None:
    check(account, simulator, way, mode, slug, expected(way, mode, slug))


# The upstream finishes and stays open: the gateway waits a while for usage.
@pytest.mark.parametrize(
    ("name", "mode", "slug"),
    [
        ("chat-openai", "streamed", "never-usage"),
        ("chat-openai", "aggregated", "stall-after-finish"),
        ("chat-anthropic", "streamed", "stall-after-finish"),
        ("text-openai", "aggregated", "never-usage"),
        ("text-anthropic", "aggregated", "never-usage"),
        ("text-on-chat", "streamed", "never-usage"),
    ],
)
def test_usage_that_never_comes_is_estimated(
    hurried_account: Customer, simulator: Simulator, name: str, mode: str, slug: str
) -> None:
    row = expected(WAYS[name], mode, slug)
    if (name, slug) == ("chat-anthropic", "stall-after-finish"):
        row = replace(row, tokens=COUNTED, estimated=False)  # Anthropic's usage comes with the finish
    check(hurried_account, simulator, WAYS[name], mode, slug, row)


def in_time(way: Way, mode: str, slug: str) -> tuple[Expected, str]:
    """Returns the row of an ending by a budget, and the budget's name."""
    stalled = Expected(
        ending="stalled", tokens=estimated(way, 3), interrupted=True, estimated=True, cut=True, done=True
    )
    late = replace(NOTHING, status=504, code=TIMED_OUT, cut=True)
    match slug, mode:
        case ("silent", _) | (_, "whole") | ("stall-at-once", _):
            return late, "first-byte"
        case "silent-after-role", _:
            return late, "stream-idle"
        case "stall", "streamed":
            return stalled, ""
        case "stall", _:
            return late, "stream-idle"
        case "slow-chunks", "streamed":
            return replace(stalled, tokens=None, text=None), ""
        case _:
            return late, "overall"


SLOW_ROWS = [
    *((way, "streamed", slug) for way in TABLE_WAYS for slug in ("silent", "stall")),
    *((WAYS["chat-openai"], mode, slug) for mode in ("aggregated", "whole") for slug in ("silent", "stall")),
    *((WAYS[name], "aggregated", "stall") for name in ("chat-anthropic", "text-openai")),
    *((WAYS["chat-openai"], mode, "slow-chunks") for mode in MODES),
    *((WAYS[name], "streamed", "slow-chunks") for name in ("chat-anthropic", "text-openai")),
    *((WAYS[name], "streamed", "stall-at-once") for name in ("chat-anthropic", "text-openai")),
    *(
        (WAYS[name], mode, "silent-after-role")  # a whole answer has no pause there, a text completion has no role
        for name in ("chat-openai", "chat-anthropic")
        for mode in ("streamed", "aggregated")
    ),
]


@pytest.mark.parametrize(
    ("way", "mode", "slug"), [pytest.param(*row, id=f"{row[2]}-{row[1]}-{row[0].name}") for row in SLOW_ROWS]
)
def test_a_budget_that_runs_out_is_a_status_before_the_first_output_and_a_stall_after_it(
    hurried_account: Customer, simulator: Simulator, way: Way, mode: str, slug: str
) -> None:
    row, budget = in_time(way, mode, slug)
    reply = check(hurried_account, simulator, way, mode, slug, row)
    if row.status == 504:
        assert budget in reply.json()["error"]["message"]
        assert "Retry-After" not in reply.headers


def check(customer: Customer, simulator: Simulator, way: Way, mode: str, slug: str, row: Expected) -> requests.Response:
    """Sends the request, and compares the answer, the record, the ledger and the upstream with the row."""
    upstream = ALL_BEHAVIOURS[slug]
    before = simulator.stats(upstream)
    reply = post(customer, way, slug, **MODES[mode])
    seen = seen_by_client(way, reply, streams=mode == "streamed")
    assert seen == (row.status, row.code, row.done if mode == "streamed" else False, seen[3])
    if row.text is not None:
        assert seen[3] == row.text
    check_bill(customer, row)
    assert eventually(lambda: simulator.stats(upstream)["open"] == before["open"])
    if row.cut is not None:
        assert simulator.stats(upstream)["cut"] - before["cut"] == row.cut
    return reply


def seen_by_client(way: Way, reply: requests.Response, *, streams: bool) -> tuple[int, str | None, bool, str]:
    """Returns status, code (of the response or of its error frame), whether `[DONE]` came, and the text."""
    if reply.status_code != 200:
        return reply.status_code, checked(reply.json()["error"])[1], False, ""
    if not streams:
        return 200, None, False, way.whole_text(reply.json())
    streamed = Stream.of(reply)
    codes = [checked(error)[1] for error in streamed.errors]
    assert len(codes) <= 1
    return 200, codes[0] if codes else None, streamed.done, way.streamed_text(streamed)


def check_bill(customer: Customer, row: Expected) -> None:
    if row.ending is None:
        assert bills.untouched(customer)
        return
    (record,) = bills.records(customer)
    assert (record.ending, record.interrupted, record.usage_estimated) == (row.ending, row.interrupted, row.estimated)
    if row.tokens is not None:
        assert Tokens(record.prompt_tokens, record.completion_tokens) == row.tokens
    assert record.prompt_tokens > 0
    assert bills.debits(customer) == ([record.cost] if row.priced else [])
    assert (record.cost is not None) == row.priced


def test_every_ending_has_its_rule() -> None:
    assert set(ENDINGS) == set(Generation.Ending)
