"""Each fault of the simulated provider has a defined result for clients, in every way and both dialects."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from simulator.behaviour import ERRORS
from tests import bills
from tests.catalogue import model, provider
from tests.chat import HELLO, PATH, Stream, answer
from tests.inference.messages.events import PATH as MESSAGES
from tests.inference.messages.events import Events as MessageEvents
from tests.inference.shapes import TEXT, shaped
from tests.inference.six_ways import WAYS, Answer, ask, tool_of
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.simulator.process import running

Json = dict[str, Any]

OPENAI, ANTHROPIC, ALONE, CLAUDE_ALONE = "sim", "simanthropic", "alone", "claudealone"
SAID = Answer("hello there", finish="stop")
THOUGHT = replace(SAID, reasoning="First I read the question.")
PAGES = ("https://cited.example/0", "https://cited.example/1")
QUERY = "use both now"
CALLED = Answer(calls=(("get_weather", {"query": QUERY}), ("get_time", {"query": QUERY})), finish="tool_calls")
EMOJI, UNREADABLE = "\U0001f600", "\ufffd"


MISSING = ("message-start", "block-start", "block-stop")


def called(ending: str) -> Answer:
    """Returns two calls whose arguments end with `ending`."""
    return replace(CALLED, calls=tuple((name, {"query": QUERY + ending}) for name, _ in CALLED.calls))


# Maps a fault to what a client of any API gets, streamed and whole.
TEXTS = {
    "finish-every-chunk": SAID,
    "finish:tool_calls": SAID,
    "finish-every-chunk+reasoning": THOUGHT,
    "blank-data": SAID,
    "blank-data:3+spaced-done": SAID,
    "surrogates:halves": replace(SAID, text=f"hello there{EMOJI}"),
    "surrogates:lone": replace(SAID, text=f"hello there{UNREADABLE}"),
    "surrogates:bytes": replace(SAID, text=f"hello there{UNREADABLE * 4}"),
    "surrogates:halves+reasoning": Answer(f"hello there{EMOJI}", f"{THOUGHT.reasoning}{EMOJI}", finish="stop"),
    "message-for-delta": SAID,
    "not-finite": SAID,
    "lists": replace(SAID, cited=PAGES),
    "unreadable:1": SAID,
    "quoted-done": SAID,
    "data-comments": SAID,
    "no-blank-lines": SAID,
    "byte-order-marks": SAID,
    "byte-order-marks+no-blank-lines+reasoning": THOUGHT,
    "delta-for-message": SAID,
    "delta-for-message+reasoning:reasoning_text": THOUGHT,
    "reasoning+reasoning-parts": THOUGHT,
    **{f"no-{event}+reasoning": THOUGHT for event in MISSING},
    "no-message-start+no-block-start+no-block-stop": SAID,
}
CALLS = {
    "tools": CALLED,
    **{f"tools+index:{index}": CALLED for index in ("same", "none", "one", "negative")},
    "tools+index:same+no-call-ids": CALLED,
    "tools+index:same+whole-calls": CALLED,
    "tools+no-call-ids": CALLED,
    "tools+whole-calls": CALLED,
    "tools+whole-calls+finish-every-chunk": CALLED,
    "tools+object-arguments": CALLED,
    "tools+object-arguments+index:same": CALLED,
    "tools+finish-every-chunk": CALLED,
    "tools+message-for-delta": CALLED,
    "tools+blank-data": CALLED,
    **{f"tools+tool-name:{name}": CALLED for name in ("pieces", "late", "growing", "repeated")},
    "tools+same-call-ids": CALLED,
    "tools+same-call-ids+whole-calls": CALLED,
    "tools+arguments-again": CALLED,
    **{f"tools+arguments-again+index:{index}+no-call-ids": CALLED for index in ("same", "none")},
    "tools+blank-arguments": replace(CALLED, calls=tuple((name, {}) for name, _ in CALLED.calls)),
    "tools+unlisted-calls": CALLED,
    "tools+flat-calls": CALLED,
    "tools+flat-calls+whole-calls": CALLED,
    "tools+no-blank-lines+byte-order-marks": CALLED,
    **{f"tools+no-{event}": CALLED for event in MISSING},
    "tools+surrogates:halves": called(EMOJI),
    "tools+surrogates:lone": called(UNREADABLE),
    "tools+surrogates:bytes": called(UNREADABLE * 4),
}
OF_BOTH_DIALECTS = ("blank-data", "index", "surrogates", "unreadable", "tools", "data-", "byte-", "no-")
OF_OPENAI = (
    *("no-call-ids", "whole-calls", "object-arguments", "finish-every", "message-for", "tool-name", "-again"),
    *("unlisted-calls", "flat-calls"),
)
BREAKS = ("unreadable:1:2", "choice-error", "tools+unreadable:2")
# An answer of the wrong kind is accepted only from a connection that has served no other request.
OTHER_KINDS = {"other-kind+close-delimited": SAID, "tools+other-kind+close-delimited": CALLED}
# Maps a fault to the counted tokens: prompt, completion, read from the cache, estimated.
COUNTS = {
    "usage-shape:details-once+cached:20": (22, 2, 20, False),
    "usage-shape:prompt-once": (2, 2, 0, False),
    "usage-shape:zero-prompt": (None, 2, 0, True),
    "usage-shape:two-hits+cached:20": (22, 2, 20, False),
    "usage-shape:cache-names+cached:20+cache-write:10": (32, 2, 20, False),
    "usage-shape:message-names+cached:20+cache-write:10": (32, 2, 20, False),
    "usage-in:choice": (2, 2, 0, False),
}
CLAUDES_COUNTS = {
    "usage-shape:prompt-once+cached:20": (22, 2, 20, False),
    "usage-shape:zero-prompt": (None, 2, 0, True),
    "usage-shape:inclusive+cached:20": (22, 2, 20, False),
    "bad-usage:written+cache-write:10:10": (12, 2, 0, False),
}
STOPS = ("stop-in:matched_stop", "stop-in:stop_reason")
ESCAPED = tuple(f"tools+surrogates:escaped{more}" for more in ("", "+arguments-again", "+index:same+no-call-ids"))
MORE = ("lists:3", "mixed-details", "usage-shape:zero", *ESCAPED)
REFUSALS = tuple(f"error-in:{shape}{code}" for shape in ERRORS for code in ("", ":200"))
WORDS = dict.fromkeys((*TEXTS, *CALLS, *BREAKS, *COUNTS, *CLAUDES_COUNTS, *STOPS, *MORE, *REFUSALS))


def slug(words: str) -> str:
    """Writes the words of a model's name as a part of an id."""
    return "of-" + words.replace(":", "-").replace("+", "-").replace("_", "-")


def both_dialects(cases: dict[str, Answer]) -> list[tuple[str, str]]:
    claudes = [words for words in cases if words.startswith(OF_BOTH_DIALECTS) and not any(map(words.count, OF_OPENAI))]
    return [*((OPENAI, words) for words in cases), *((ANTHROPIC, words) for words in claudes)]


@pytest.fixture(scope="module")
def gateway(gateway: GatewayServer) -> Iterator[GatewayServer]:
    models = [
        model(slug(words), provider=dialect, upstream_model=words) for dialect in (OPENAI, ANTHROPIC) for words in WORDS
    ]
    models += [
        model(slug(words), provider=dialect, upstream_model=words)
        for dialect in (ALONE, CLAUDE_ALONE)
        for words in OTHER_KINDS
    ]
    text = "finish-every-chunk"
    models.append(shaped("text", text, modality="completion", upstream_model=text))
    with running() as alone:
        providers = [provider(ALONE, alone.url), provider(CLAUDE_ALONE, alone.url, dialect="anthropic")]
        gateway.offer(providers=providers, models=models)
        yield gateway


def asked(customer: Customer, dialect: str, words: str, way: str, cap: int = 500, **fields: Any) -> Answer:
    name = "max_output_tokens" if way.startswith("responses") else "max_tokens"
    return ask(customer, f"{dialect}/test/{slug(words)}", way, **{name: cap}, **fields)


def tools_of(way: str) -> Json:
    """Returns a question with two tools to call, in the API of this way."""
    return {**asking(way, QUERY), "tools": [tool_of(way, name) for name, _ in CALLED.calls]}


# A whole answer to the higher cap is streamed from the upstream and put together.
CAPPED = [(way, 500) for way in WAYS] + [(way, 16) for way in WAYS if way.endswith("whole")]


def asking(way: str, words: str) -> Json:
    """Returns a question in the API of this way."""
    return {"input": words} if way.startswith("responses") else {"messages": [{"role": "user", "content": words}]}


def hello(way: str) -> Json:
    return asking(way, "hello there")


@pytest.mark.parametrize(("dialect", "words"), both_dialects(TEXTS))
def test_a_text_arrives_whole(customer: Customer, dialect: str, words: str) -> None:
    for way, cap in CAPPED:
        got = asked(customer, dialect, words, way, cap, **hello(way))
        assert (way, cap, got) == (way, cap, TEXTS[words])


@pytest.mark.parametrize(("dialect", "words"), both_dialects(CALLS))
def test_two_calls_arrive_as_two(customer: Customer, dialect: str, words: str) -> None:
    for way, cap in CAPPED:
        got = asked(customer, dialect, words, way, cap, **tools_of(way))
        assert len(set(got.call_ids)) == 2
        assert (way, cap, replace(got, call_ids=())) == (way, cap, CALLS[words])


@pytest.mark.parametrize("words", OTHER_KINDS)
@pytest.mark.parametrize("dialect", [ALONE, CLAUDE_ALONE])
def test_an_answer_of_the_other_kind_is_read_as_what_it_is(customer: Customer, dialect: str, words: str) -> None:
    for way, cap in CAPPED:
        got = asked(customer, dialect, words, way, cap, **question_of(words, way))
        assert (way, cap, replace(got, call_ids=())) == (way, cap, OTHER_KINDS[words])


def question_of(words: str, way: str) -> Json:
    return tools_of(way) if words.startswith("tools") else hello(way)


@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("messages")])
def test_citations_of_messages_arrive_one_by_one(customer: Customer, way: str) -> None:
    assert asked(customer, ANTHROPIC, "lists", way, **hello(way)) == replace(SAID, cited=PAGES)


@pytest.mark.parametrize("words", BREAKS)
@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_fails_is_not_finished(customer: Customer, words: str, way: str) -> None:
    got = asked(customer, OPENAI, words, way, **question_of(words, way))
    assert got.finish is None
    assert got.broke or got.refused == 503


@pytest.mark.parametrize("way", [way for way in WAYS if way.endswith("whole")])
def test_a_whole_answer_whose_choice_failed_is_refused(customer: Customer, way: str) -> None:
    assert asked(customer, OPENAI, "choice-error", way, 16, **hello(way)) == Answer(refused=503)
    assert bills.untouched(customer)


@pytest.mark.parametrize("cap", [16, 500], ids=["asked whole", "asked streamed"])
def test_a_whole_answer_has_every_list(customer: Customer, cap: int) -> None:
    message = message_of(customer, "lists-3", cap)
    assert [each["url_citation"]["url"][-1] for each in message["annotations"]] == ["0", "1", "2"]
    assert len(message["images"]) == len({each["image_url"]["url"] for each in message["images"]}) == 3
    assert [each["summary"] for each in message["reasoning_details"]] == ["Step 0.", "Step 1.", "Step 2."]
    kinds = [each["type"] for each in message_of(customer, "mixed-details", cap)["reasoning_details"]]
    assert kinds == ["reasoning.summary", "reasoning.encrypted"]


def message_of(customer: Customer, name: str, cap: int) -> Json:
    """Returns the message of a whole chat."""
    message: Json = answer(customer, f"{OPENAI}/test/of-{name}", max_tokens=cap)["choices"][0]["message"]
    return message


@pytest.mark.parametrize("words", ESCAPED)
@pytest.mark.parametrize("way", WAYS)
def test_half_a_character_that_a_model_escaped_stays_readable(customer: Customer, words: str, way: str) -> None:
    got = asked(customer, OPENAI, words, way, **tools_of(way))
    queries = [arguments["query"] for _, arguments in got.calls]
    assert [query.encode(errors="replace").decode() for query in queries] in ([f"{QUERY}?"] * 2, [f"{QUERY}\ufffd"] * 2)


@pytest.mark.parametrize("shape", ERRORS)
@pytest.mark.parametrize(("code", "status"), [("", 400), (":200", 503)])
@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC])
def test_any_error_is_passed_on(customer: Customer, dialect: str, shape: str, code: str, status: int) -> None:
    for path, stream in product((PATH, MESSAGES), (False, True)):
        body = {"model": f"{dialect}/test/{slug(f'error-in:{shape}{code}')}", "messages": HELLO, "max_tokens": 16}
        reply = customer.http.post(path, json={**body, "stream": stream})
        assert (path, stream, reply.status_code) == (path, stream, status)
        assert "it must be at most 2" in reply.json()["error"]["message"]
    assert bills.untouched(customer)


@pytest.mark.parametrize("words", STOPS)
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
def test_messages_name_the_stop_sequence_that_matched(customer: Customer, words: str, streams: bool) -> None:
    body = {"model": f"{OPENAI}/test/{slug(words)}", "max_tokens": 500, "stop_sequences": ["there"], "stream": streams}
    reply = customer.http.post(MESSAGES, json={**body, "messages": HELLO})
    ended = MessageEvents.of(reply).last["delta"] if streams else reply.json()
    assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", "there")


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
def test_a_text_completion_goes_on_after_each_finish(customer: Customer, streams: bool) -> None:
    body = {"model": f"{OPENAI}/text/finish-every-chunk", "prompt": "hello there", "stream": streams, "max_tokens": 500}
    reply = customer.http.post(TEXT, json=body)
    answers = Stream.of(reply).chunks if streams else [reply.json()]
    choices = [choice for each in answers for choice in each["choices"]]
    assert "".join(choice["text"] for choice in choices) == "hello there"
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]


@pytest.mark.parametrize(
    ("dialect", "words", "counts"),
    [(OPENAI, *each) for each in COUNTS.items()] + [(ANTHROPIC, *each) for each in CLAUDES_COUNTS.items()],
)
def test_what_is_counted_is_billed(
    customer: Customer, dialect: str, words: str, counts: tuple[int | None, int, int, bool]
) -> None:
    prompt, *others = counts
    for way in WAYS:
        assert asked(customer, dialect, words, way, **hello(way)) == SAID
    columns = "prompt_tokens, completion_tokens, cache_read_tokens, usage_estimated"
    where = "WHERE account_id = %s"
    rows = customer.gateway.query(f"SELECT {columns} FROM billing_generation {where}", [bills.hex_of(customer.id)])
    assert {(*row[1:3], bool(row[3])) for row in rows} == {tuple(others)}
    assert min(row[0] for row in rows) > 0
    assert prompt is None or {row[0] for row in rows} == {prompt}


def test_a_count_of_no_tokens_is_estimated(customer: Customer) -> None:
    body = {"model": f"{ANTHROPIC}/test/{slug('usage-shape:zero')}", "messages": HELLO}
    assert customer.http.post("/v1/messages/count_tokens", json=body).json()["input_tokens"] > 0
