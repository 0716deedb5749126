"""If an upstream refuses a request, the client gets a 400 that names and quotes the provider, and nothing is billed."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests import bills
from tests.catalogue import PRICES, provider
from tests.chat import HELLO, Stream
from tests.conftest import PROVIDER_KEYS, OpenAccount
from tests.envelope import message, refusal
from tests.inference import shapes
from tests.inference.messages.events import Events
from tests.inference.odd_upstream import OddUpstream, Script, http, listening
from tests.inference.responses.events import Events as ResponseEvents
from tests.inference.shapes import CHAT, EMBEDDINGS, TEXT
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]

GENERAL = "invalid_request_error"
OVERFLOW = "context_length_exceeded"
SSE, JSON = "Content-Type: text/event-stream", "Content-Type: application/json"
TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"
REPEATED = {"input": "x" * 500_000, "msg": TOO_LONG, "loc": ["body", "messages"]}
CREDENTIAL = PROVIDER_KEYS["SIM_API_KEY"]
NEXT_HOUR = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
LAST_YEAR = format_datetime(datetime.now(UTC) - timedelta(days=365), usegmt=True)


def error_body(words: str = "No.", **fields: Any) -> bytes:
    """Returns an error in OpenAI's shape."""
    return json.dumps({"error": {"message": words, **fields}}).encode()


def by_claude(kind: str, words: str = "No.") -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": words}}).encode()


def frames(*events: bytes) -> bytes:
    return http("200 OK", b"".join(b"data: " + event + b"\n\n" for event in events), SSE)


def chunk(**fields: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": None, **fields}]}).encode()


OUTPUT = chunk(delta={"content": "hello"})
ANSWER = frames(OUTPUT, chunk(finish_reason="stop"), b"[DONE]")

# Maps a name to the upstream's error, and to the code and param for the client.
CODES: dict[str, tuple[Json, str, str | None]] = {
    "own-code": ({"code": "unsupported_value", "param": "temperature"}, "unsupported_value", "temperature"),
    "overflow-code": ({"code": OVERFLOW, "param": "messages"}, OVERFLOW, "messages"),
    "a-path": ({"param": "messages[0].content"}, GENERAL, "messages[0].content"),
    "not-sent": ({"param": "top_k"}, GENERAL, None),
    "a-cap-by-another-name": ({"param": "max_tokens"}, GENERAL, "max_completion_tokens"),
    "no-path": ({"param": "messages; drop table"}, GENERAL, None),
    "no-word": ({"code": "Not A Word"}, GENERAL, None),
    "a-key-as-code": ({"code": "gsk_4f9a8b7c6d5e4f3a2b1c"}, GENERAL, None),
    "the-credential": ({"code": CREDENTIAL, "param": f"messages.{CREDENTIAL}"}, GENERAL, None),
    "a-key-in-a-path": ({"param": "messages.sk-4f9a8b7c6d5e4f3a2b1c"}, GENERAL, None),
    "a-number": ({"code": 400, "param": 7}, GENERAL, None),
    **{
        f"code-{code}": ({"code": code}, GENERAL, None)
        for code in (*("alias_not_found", "rate_limit_exceeded", "permission_denied", "project_not_found"),)
    },
}
# These codes are about the operator's account or the catalogue, not about the request.
OF_THE_OPERATOR = (
    *("insufficient_credits", "api_key_expired", "model_not_found", "insufficient_quota", "invalid_api_key"),
    *("billing_hard_limit_reached", "account_deactivated"),
)
CLAUDES: dict[str, tuple[bytes, str, str | None]] = {
    "its-cap": (by_claude(GENERAL, "max_tokens: 9 > 8"), GENERAL, "max_completion_tokens"),
    "its-stop": (by_claude(GENERAL, "stop_sequences: each must be non-empty"), GENERAL, "stop"),
    "its-form": (by_claude(GENERAL, "output_config.format.schema: too deep"), GENERAL, "response_format"),
    "its-messages": (by_claude(GENERAL, "messages.0.content: Field required"), GENERAL, "messages"),
    "its-overflow": (by_claude(GENERAL, TOO_LONG), OVERFLOW, None),
    "its-size": (by_claude("request_too_large"), GENERAL, None),
}
IN_ANSWERS: dict[str, bytes] = {
    "number": error_body(code=400),
    "status": error_body(status="422"),
    "type": error_body(type=GENERAL),
    "overflow": error_body(TOO_LONG),
}
WAITS = {"9": "9", "1.2": "2", "0": "1", "3600": "120", NEXT_HOUR: "120", LAST_YEAR: "1", "soon": None, "-5": None}
SCRIPTS: dict[str, Script] = {
    **{name: http("400 Bad", error_body(**fields)) for name, (fields, _, _) in CODES.items()},
    **{f"operator-{code}": http("400 Bad", error_body(code=code)) for code in OF_THE_OPERATOR},
    **{name: http("400 Bad", body) for name, (body, _, _) in CLAUDES.items()},
    **{f"in-200-{name}": http("200 OK", body, JSON) for name, body in IN_ANSWERS.items()},
    **{f"in-frame-{name}": frames(body) for name, body in IN_ANSWERS.items()},
    **{f"claude-frame-{kind}": frames(by_claude(kind)) for kind in (GENERAL, "request_too_large", "overloaded_error")},
    **{f"bare-{code}": http(f"{code} Bad", b"<html>nginx</html>") for code in (400, 413, 422)},
    **{f"one-word-{code}": http(f"{code} Bad", error_body("x" * 5000)) for code in (400, 422)},
    "repeats-the-request": http("422 Bad", json.dumps({"detail": [REPEATED]}).encode()),
    **{
        f"cut-{code}": f"HTTP/1.1 {code} Bad\r\nContent-Length: 1000\r\n\r\n".encode() + error_body()
        for code in (400, 413, 422, 500)
    },
    **{f"wait-{at}": http("429 Slow", error_body(), f"Retry-After: {wait}") for at, wait in enumerate(WAITS)},
    "wait-503": http("503 Busy", error_body(), "Retry-After: 9"),
    "wait-404": http("404 Gone", error_body(), "Retry-After: 9"),
    "late": frames(OUTPUT, error_body("Too late.", code=400)),
    **{f"late-{code}": frames(OUTPUT, error_body("Too late.", code=code)) for code in (401, 429, 500)},
    "frame-429": frames(error_body(code=429)),
    "ordinary": http("400 Bad", error_body("Unsupported key response_format")),
    "leaky": http("400 Bad", error_body(f"Key {CREDENTIAL} of http://10.2.3.4/v1 and vllm.internal:8000 is bad.")),
    "overflows": http("400 Bad", error_body(TOO_LONG)),
    "refuses": http("400 Bad", error_body("Refused.")),
    "fails": http("503 Busy", error_body("Busy."), "Retry-After: 9"),
    "fails-later": http("503 Busy", error_body("Busy."), "Retry-After: 20"),
    "complains": http("200 OK", error_body("It rained.")),
    "answers": ANSWER,
}  # fmt: skip

# Lists the candidates in the order of their ranking: each one's behaviour and context window.
CANDIDATES: dict[str, list[tuple[str, int | None]]] = {
    "refused-at-once": [("refuses", 100), ("answers", 100)],
    "refused-later": [("fails", 100), ("refuses", 100), ("answers", 100)],
    "larger-window": [("overflows", 100), ("answers", 100), ("answers", None), ("answers", 200)],
    "no-larger-window": [("overflows", 100), ("answers", 100), ("answers", None)],
    "unknown-window": [("overflows", None), ("answers", 200)],
    "overflows-twice": [("overflows", 100), ("overflows", 300), ("answers", 200), ("answers", 400)],
    "larger-fails": [("overflows", 100), ("fails", 200)],
    "all-fail": [("fails-later", 100), ("fails", 100)],
    "one-names-no-wait": [("fails", 100), ("complains", 100)],
}


@pytest.fixture(scope="module")
def odd() -> Iterator[OddUpstream]:
    with listening(SCRIPTS) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def strict(failover_gateway: GatewayServer, odd: OddUpstream) -> GatewayServer:
    at = f"http://127.0.0.1:{odd.port}/v1"
    providers = [
        provider("odd", at, credential_env="SIM_API_KEY"),
        provider("oddclaude", at, dialect="anthropic"),
        *(provider(f"rank{rank}", at) for rank in range(4)),
    ]
    models = [
        *(
            shapes.shaped("test", name, provider=slug, upstream_model=name)
            for slug in ("odd", "oddclaude")
            for name in SCRIPTS
        ),
        *(
            shapes.shaped("auto", name, provider=f"rank{rank}", upstream_model=behaviour, context_length=window,
                          pricing=PRICES | {"prompt_per_1m_tokens": 0.1 + rank})
            for name, candidates in CANDIDATES.items()
            for rank, (behaviour, window) in enumerate(candidates)
        ),
    ]  # fmt: skip
    failover_gateway.offer(providers=providers, models=models)
    return failover_gateway


@pytest.fixture
def customer(strict: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(strict)


def ask(customer: Customer, model: str, **fields: Any) -> Any:
    asked = {"messages": HELLO, "max_completion_tokens": 16, **fields}
    return customer.http.post(CHAT, json={"model": model, **asked})


MODES: dict[str, Json] = {"whole": {}, "aggregated": {"max_completion_tokens": 1000}, "streamed": {"stream": True}}


# --- Statuses


@pytest.mark.parametrize("code", [400, 413, 422])
@pytest.mark.parametrize(
    ("path", "model", "fields"),
    [
        (CHAT, "simanthropic/claude", {"messages": HELLO, "max_tokens": 16}),
        (CHAT, "simanthropic/claude", {"messages": HELLO, "stream": True}),
        (CHAT, "sim/text", {"messages": HELLO}),
        (TEXT, "sim/text", {"prompt": "hi", "stream": True}),
        (EMBEDDINGS, "sim/embed", {"input": "hi"}),
    ],
    ids=["claude", "claude streamed", "chat on text", "text streamed", "embeddings"],
)
def test_a_refused_request_is_a_400_that_should_not_be_retried(
    customer: Customer, code: int, path: str, model: str, fields: Json
) -> None:
    reply = customer.http.post(path, json={"model": f"{model}/status-{code}", **fields})
    assert refusal(reply)[:2] == (400, GENERAL)
    assert message(reply).startswith(f"Provider '{model.partition('/')[0]}' rejected the request: ")
    assert reply.headers["x-should-retry"] == "false"
    assert bills.untouched(customer)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_refusal_without_words_says_its_status(customer: Customer, code: int) -> None:
    reply = ask(customer, f"odd/test/bare-{code}")
    assert refusal(reply) == (400, GENERAL, GENERAL, None)
    assert message(reply) == f"Provider 'odd' rejected the request (HTTP {code})."


@pytest.mark.parametrize("code", [400, 422])
def test_a_refusal_of_which_nothing_can_be_quoted_says_its_status(customer: Customer, code: int) -> None:
    assert message(ask(customer, f"odd/test/one-word-{code}")) == f"Provider 'odd' rejected the request (HTTP {code})."


def test_an_overflow_is_recognised_even_if_the_provider_repeats_the_request(customer: Customer) -> None:
    """Servers on FastAPI repeat the request. An agent shortens its conversation only because of this code."""
    reply = ask(customer, "odd/test/repeats-the-request")
    assert refusal(reply) == (400, GENERAL, OVERFLOW, "messages")
    assert message(reply) == f"Provider 'odd' rejected the request: {TOO_LONG}"


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_refusal_that_breaks_off_is_one_without_words(customer: Customer, code: int) -> None:
    reply = ask(customer, f"odd/test/cut-{code}")
    assert refusal(reply) == (400, GENERAL, GENERAL, None)
    assert message(reply) == f"Provider 'odd' rejected the request (HTTP {code})."
    assert bills.untouched(customer)


def test_a_failure_that_breaks_off_is_a_failure(customer: Customer) -> None:
    assert refusal(ask(customer, "odd/test/cut-500"))[:2] == (503, "provider_error")


# --- Code and param


@pytest.mark.parametrize("name", CODES)
def test_code_and_param_are_the_upstreams_if_they_concern_the_request(customer: Customer, name: str) -> None:
    _, code, param = CODES[name]
    reply = ask(customer, f"odd/test/{name}", temperature=1)
    assert refusal(reply) == (400, GENERAL, code, param)
    assert message(reply) == "Provider 'odd' rejected the request: No."


@pytest.mark.parametrize("code", OF_THE_OPERATOR)
def test_a_refusal_of_the_gateway_itself_is_no_refusal_of_the_request(customer: Customer, code: str) -> None:
    reply = ask(customer, f"odd/test/operator-{code}", temperature=1)
    assert refusal(reply) == (503, "provider_error", "provider_error", None)
    assert reply.headers["x-should-retry"] == "false"
    assert bills.untouched(customer)


@pytest.mark.parametrize("name", CLAUDES)
def test_the_field_has_the_name_that_the_client_gave_it(customer: Customer, name: str) -> None:
    _, code, param = CLAUDES[name]
    form = {"type": "json_schema", "json_schema": {"name": "any", "schema": {"type": "object"}}}
    reply = ask(customer, f"oddclaude/test/{name}", stop=["a"], response_format=form)
    assert refusal(reply) == (400, GENERAL, code, param)


def test_a_prompt_that_was_sent_as_a_message_is_the_field_in_question(customer: Customer) -> None:
    reply = customer.http.post(TEXT, json={"model": "odd/test/a-path", "prompt": "hi"})
    assert refusal(reply) == (400, GENERAL, GENERAL, "prompt")


# --- Errors in an answer's place


@pytest.mark.parametrize("name", IN_ANSWERS)
@pytest.mark.parametrize(
    ("form", "mode"), [*(("in-200", mode) for mode in MODES), ("in-frame", "aggregated"), ("in-frame", "streamed")]
)
def test_an_error_instead_of_an_answer_is_a_refusal_if_it_means_one(
    customer: Customer, name: str, form: str, mode: str
) -> None:
    reply = ask(customer, f"odd/test/{form}-{name}", **MODES[mode])
    assert refusal(reply) == (400, GENERAL, OVERFLOW if name == "overflow" else GENERAL, None)
    assert "Provider 'odd' rejected the request: " in message(reply)
    assert bills.untouched(customer)


@pytest.mark.parametrize(("kind", "status"), [(GENERAL, 400), ("request_too_large", 400), ("overloaded_error", 503)])
def test_an_error_event_is_a_refusal_by_its_type(customer: Customer, kind: str, status: int) -> None:
    assert refusal(ask(customer, f"oddclaude/test/claude-frame-{kind}", stream=True)).status == status
    assert bills.untouched(customer)


def test_an_error_after_output_ends_the_stream_as_a_failure(customer: Customer) -> None:
    stream = Stream.of(ask(customer, "odd/test/late", stream=True))
    (error,) = stream.errors
    assert (error["type"], error["code"], stream.done) == ("provider_error", "provider_error", False)
    assert error["message"].startswith("Provider 'odd' reported an error: Too late.")
    (record,) = bills.records(customer)
    assert (record.ending, record.interrupted) == ("upstream_broke", True)


@pytest.mark.parametrize(
    ("code", "kind", "its_code"),
    [
        (400, "api_error", "provider_error"),
        (401, "api_error", "provider_error"),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (500, "overloaded_error", "provider_error"),
    ],
)
def test_messages_tell_after_an_error_in_mid_stream_whether_a_retry_may_help(
    customer: Customer, code: int, kind: str, its_code: str
) -> None:
    asked = {"model": f"odd/test/{'late' if code == 400 else f'late-{code}'}", "messages": HELLO, "max_tokens": 16}
    streamed = Events.of(customer.http.post("/v1/messages", json={**asked, "stream": True}))
    assert (streamed.text, streamed.last["error"]["type"], streamed.last["error"]["code"]) == ("hello", kind, its_code)


@pytest.mark.parametrize(
    ("code", "error", "failed"),
    [(429, "rate_limit_exceeded", "rate_limit_exceeded"), (500, "provider_error", "server_error")],
)
def test_responses_name_a_rate_limit_that_comes_in_mid_stream(
    customer: Customer, code: int, error: str, failed: str
) -> None:
    asked = {"model": f"odd/test/late-{code}", "input": "hello", "stream": True}
    streamed = ResponseEvents.of(customer.http.post("/v1/responses", json=asked))
    assert [event["code"] for event in streamed.named("error")] == [error]
    assert (streamed.final["status"], streamed.final["error"]["code"]) == ("failed", failed)


def test_a_rate_limit_in_place_of_the_first_event_is_one(customer: Customer) -> None:
    asked = {"model": "odd/test/frame-429", "stream": True}
    as_message = customer.http.post("/v1/messages", json={**asked, "messages": HELLO, "max_tokens": 16})
    as_response = customer.http.post("/v1/responses", json={**asked, "input": "hello"})
    for reply in (as_message, as_response):
        error = reply.json()["error"]
        assert (reply.status_code, error["type"], error["code"]) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert refusal(ask(customer, "odd/test/frame-429", stream=True))[:2] == (503, "provider_error")


# --- Messages


def test_ordinary_words_are_quoted_as_they_are(customer: Customer) -> None:
    reply = ask(customer, "odd/test/ordinary")
    assert message(reply) == "Provider 'odd' rejected the request: Unsupported key response_format"


def test_secrets_and_addresses_are_not_quoted(customer: Customer) -> None:
    reply = ask(customer, "odd/test/leaky")
    assert message(reply) == "Provider 'odd' rejected the request: Key […] of […] and […] is bad."


# --- Failures name their wait


@pytest.mark.parametrize("wait", WAITS, ids=range(len(WAITS)))
def test_an_upstreams_wait_is_passed_on_within_bounds(customer: Customer, wait: str) -> None:
    reply = ask(customer, f"odd/test/wait-{list(WAITS).index(wait)}")
    assert refusal(reply)[:3] == (503, "provider_error", "provider_error")
    assert reply.headers.get("Retry-After") == WAITS[wait]


def test_only_what_is_worth_a_retry_names_a_wait(customer: Customer) -> None:
    assert ask(customer, "odd/test/wait-503").headers["Retry-After"] == "9"
    assert "Retry-After" not in ask(customer, "odd/test/wait-404").headers


# --- Failover stops at what another provider cannot mend


@pytest.mark.parametrize(
    ("name", "served_by"),
    [
        ("refused-at-once", None),
        ("refused-later", None),
        ("larger-window", "rank3"),
        ("no-larger-window", None),
        ("unknown-window", None),
        ("overflows-twice", "rank3"),
    ],
)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_failover_ends_at_a_refusal_unless_a_larger_window_may_mend_it(
    customer: Customer, name: str, served_by: str | None, streams: bool
) -> None:
    reply = ask(customer, f"auto/auto/{name}", stream=streams, max_completion_tokens=1000)
    if served_by is None:
        assert refusal(reply)[:3] == (400, GENERAL, GENERAL if name.startswith("refused") else OVERFLOW)
        assert bills.untouched(customer)
        return
    metadata = (Stream.of(reply).frames[-1] if streams else reply.json())["gateway_metadata"]
    assert (metadata["provider"], metadata["fallback_reason"]) == (served_by, "primary_error")


@pytest.mark.parametrize(("name", "wait"), [("larger-fails", "9"), ("all-fail", "9"), ("one-names-no-wait", None)])
def test_the_shortest_wait_is_reported_when_the_last_candidate_fails(
    customer: Customer, name: str, wait: str | None
) -> None:
    reply = ask(customer, f"auto/auto/{name}", max_completion_tokens=1000)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "provider_unavailable")
    assert reply.headers.get("Retry-After") == wait
    assert "x-should-retry" not in reply.headers


@pytest.mark.parametrize("model", ["oddclaude/test/its-overflow", "odd/test/overflows"])
@pytest.mark.parametrize("fields", MODES.values(), ids=MODES)
def test_an_overflow_of_messages_begins_with_the_words_that_agents_parse(
    customer: Customer, model: str, fields: Json
) -> None:
    asked = {"model": model, "messages": HELLO, "max_tokens": fields.get("max_completion_tokens", 16)}
    reply = customer.http.post("/v1/messages", json={**asked, "stream": "stream" in fields})
    provider_slug = model.partition("/")[0]
    words = f"{TOO_LONG} (Provider {provider_slug!r} rejected the request)"
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, words)
