"""A text completion request is checked (docs/api.md#text-completions), and each fault is reported with its `param`."""

from typing import Any

import pytest

from tests import bills
from tests.chat import HELLO, PATH
from tests.envelope import faulty_field, message, refusal
from tests.inference.shapes import TEXT
from tests.servers.customer import Customer

Json = dict[str, Any]

ON_TEXT, ON_CLAUDE = "sim/text/echo", "simanthropic/claude/echo"
INVALID = (400, "invalid_request_error", "invalid_request_error")

whole_or_streamed = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


def ask(customer: Customer, **fields: object) -> Any:
    return customer.http.post(TEXT, json={"model": ON_TEXT, "prompt": "hello there", **fields})


def each(name: str, *values: Any) -> list[tuple[Json, str]]:
    """Returns a field with each of these values, and its name."""
    return [({name: value}, name) for value in values]


FAULTS: list[tuple[Json, str]] = [
    ({"model": None}, "model"),
    ({"model": 7}, "model"),
    ({"model": "sim/echo"}, "model"),
    ({"prompt": None}, "prompt"),
    *each("prompt", 7, {}, [], ["a", "b"], [1, 2], [["a"]], [None], True),
    *each("max_tokens", 0, -1, 1.5, "16", True),
    *each("max_completion_tokens", 0, "16"),
    *each("temperature", -0.1, 2.1, "1", True),
    *each("top_p", -0.1, 1.1, "1"),
    *each("n", 0, -1, 1.5, "1"),
    *each("stream", "true", 1),
    *each("stop", 7, [7], {}),
    *(({name: value}, name) for name in ("presence_penalty", "frequency_penalty") for value in (-2.1, 2.1, "0")),
    *each("user", 7, {}),
    ({"stream_options": 7}, "stream_options"),
    *(({name: value}, name) for name, value in (("provider", "x"), ("service_tier", "priority"), ("store", True))),
]


@pytest.mark.parametrize(("fields", "param"), FAULTS, ids=str)
def test_a_fault_is_answered_with_400_and_the_field(account: Customer, fields: Json, param: str) -> None:
    assert faulty_field(ask(account, **fields)) == param


ALLOWED: list[Json] = [
    {"prompt": ""},
    *({"temperature": value} for value in (0, 1.5, 2)),
    *({"top_p": value} for value in (0, 0.5, 1)),
    *({name: value} for name in ("presence_penalty", "frequency_penalty") for value in (-2, 0, 2)),
    {"n": 2},
    {"max_tokens": 1},
    {"stop": "zebra"},
    {"stop": ["zebra", "yak"]},
    dict.fromkeys(
        (
            *("max_tokens", "temperature", "top_p", "n", "stream", "stop", "user", "stream_options"),
            *("presence_penalty", "frequency_penalty"),
        )
    ),
]


@pytest.mark.parametrize("fields", ALLOWED, ids=str)
def test_what_the_spec_allows_is_served(account: Customer, fields: Json) -> None:
    reply = ask(account, **fields)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("name", ["model", "prompt"])
def test_a_missing_field_is_named(account: Customer, name: str) -> None:
    body = {"model": ON_TEXT, "prompt": "hi"}
    del body[name]
    assert faulty_field(account.http.post(TEXT, json=body)) == name


def test_an_anthropic_model_gives_one_choice(account: Customer) -> None:
    assert faulty_field(ask(account, model=ON_CLAUDE, n=2)) == "n"


# --- Modalities that do not fit


@pytest.mark.parametrize(
    ("path", "model"),
    [
        *((path, f"sim/{slug}") for path in (PATH, TEXT) for slug in ("embed/echo", "test/unknown-modality")),
        *((path, f"sim/test/{slug}") for path in (PATH, TEXT) for slug in ("realtime", "responses", "embedding")),
        *((path, "auto/embed/echo") for path in (PATH, TEXT)),
    ],
)
@whole_or_streamed
def test_a_model_of_another_modality_is_refused_by_name(
    account: Customer, path: str, model: str, streams: bool
) -> None:
    body = {"model": model, "messages": HELLO, "prompt": "hi", "stream": streams}
    reply = account.http.post(path, json=body)
    assert refusal(reply) == (*INVALID, "model")
    assert ("chat" if path == PATH else "text") in message(reply)
    assert bills.untouched(account)


@pytest.mark.parametrize("path", [PATH, TEXT])
def test_a_model_that_cannot_stream_says_so(account: Customer, path: str) -> None:
    body = {"model": "sim/test/cannot-stream", "messages": HELLO, "prompt": "hi", "stream": True}
    assert faulty_field(account.http.post(path, json=body)) == "stream"
