"""A provider's 429 has its own error on Responses and Messages, else it is a 503 (docs/api.md#upstream-errors)."""

from typing import Any

import anthropic
import openai
import pytest
import requests

from tests import bills
from tests.chat import HELLO
from tests.inference.shapes import CHAT, EMBEDDINGS, TEXT
from tests.servers.customer import Customer

Json = dict[str, Any]

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
ASKED: dict[str, Json] = {
    CHAT: {"messages": HELLO},
    TEXT: {"prompt": "hello there"},
    EMBEDDINGS: {"input": "hello there"},
    RESPONSES: {"input": "hello there"},
    MESSAGES: {"messages": HELLO, "max_tokens": 16},
}
OWN = (429, "rate_limit_error", "rate_limit_exceeded")
FAILED = (503, "provider_error", "provider_error")
whole_or_streamed = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


def ask(customer: Customer, path: str, model: str, **fields: object) -> requests.Response:
    return customer.http.post(path, json={"model": model, **ASKED[path], **fields})


def error_of(reply: requests.Response) -> tuple[int, str, str]:
    error = reply.json()["error"]
    return reply.status_code, error["type"], error["code"]


@whole_or_streamed
@pytest.mark.parametrize(
    ("path", "models", "expected"),
    [
        *((path, models, OWN) for path in (RESPONSES, MESSAGES) for models in ("sim/test", "simanthropic/claude")),
        (RESPONSES, "sim/native", OWN),
        *((CHAT, models, FAILED) for models in ("sim/test", "simanthropic/claude")),
        (TEXT, "sim/text", FAILED),
    ],
)
def test_a_rate_limit_has_the_error_of_the_form(
    account: Customer, path: str, models: str, expected: tuple[int, str, str], *, streams: bool
) -> None:
    reply = ask(account, path, f"{models}/status-429", stream=streams)
    assert error_of(reply) == expected
    assert f"Provider '{models.partition('/')[0]}' answered with HTTP 429: " in reply.json()["error"]["message"]
    assert (reply.headers["Retry-After"], reply.headers.get("x-should-retry")) == ("7", None)
    assert bills.untouched(account)


def test_embeddings_stay_503(account: Customer) -> None:
    assert error_of(ask(account, EMBEDDINGS, "sim/embed/status-429")) == FAILED


def test_counting_a_prompt_is_rate_limited_alike(account: Customer) -> None:
    counting = {"model": "simanthropic/claude/status-429", "messages": HELLO}
    assert error_of(account.http.post(f"{MESSAGES}/count_tokens", json=counting)) == OWN


def test_the_official_clients_raise_what_they_have_for_it(account: Customer) -> None:
    with pytest.raises(openai.RateLimitError):
        account.openai().responses.create(model="sim/test/status-429", input="hello there")
    with pytest.raises(anthropic.RateLimitError):
        account.anthropic().messages.create(
            model="sim/test/status-429", max_tokens=16, messages=HELLO  # type: ignore[arg-type]
        )  # fmt: skip
