"""What keeps a conversation on one of several equal routes: the part of its requests that all of them share."""

import uuid
from decimal import Decimal
from typing import Any

import pytest

from accounts.rate_limits import Budgets
from inference.admission import conversation
from inference.authentication import Payer
from inference.call import Call, Shape

pytestmark = pytest.mark.sqlite_is_enough

Json = dict[str, Any]
KEY = uuid.UUID(int=1)
SYSTEM: Json = {"role": "system", "content": "Be brief."}
ASKED: Json = {"role": "user", "content": "Who are you?"}
SAID: Json = {"role": "assistant", "content": "An echo."}
MARKED: Json = {"type": "text", "text": "Who are you?", "cache_control": {"type": "ephemeral"}}
PREAMBLE = "word " * 200


def of(key: uuid.UUID = KEY, **body: Any) -> bytes:
    """The conversation of a request with this body."""
    shape = Shape.COMPLETION if "prompt" in body else Shape.CHAT
    payer = Payer(key, uuid.UUID(int=2), "EUR", Decimal(1), Budgets(0, 0))
    return conversation(Call(shape, "auto/test/echo", body), payer)


@pytest.mark.parametrize(
    "later",
    [
        {"messages": [SYSTEM, ASKED, SAID, {"role": "user", "content": "And now?"}]},
        {"messages": [SYSTEM, {"role": "user", "content": [MARKED]}]},
        {"messages": [SYSTEM, ASKED], "temperature": 1, "stream": True},
    ],
)
def test_a_conversation_is_told_by_its_beginning(later: Json) -> None:
    assert of(**later) == of(messages=[SYSTEM, ASKED])


@pytest.mark.parametrize(
    "other",
    [
        {"messages": [ASKED]},
        {"messages": [SYSTEM, {"role": "user", "content": "Who am I?"}]},
        {"messages": [SYSTEM, ASKED], "key": uuid.UUID(int=3)},
        {"messages": [SYSTEM, ASKED], "prompt_cache_key": "assistant"},
        {"prompt": "Who are you?"},
    ],
)
def test_another_beginning_or_key_is_another_conversation(other: Json) -> None:
    assert of(**other) != of(messages=[SYSTEM, ASKED])


def test_the_clients_own_cache_key_wins_over_what_is_said() -> None:
    assert of(messages=[SYSTEM], prompt_cache_key="a") == of(messages=[ASKED], prompt_cache_key="a")
    assert of(messages=[ASKED], prompt_cache_key="a") != of(messages=[ASKED], prompt_cache_key="b")
    assert of(uuid.UUID(int=3), messages=[ASKED], prompt_cache_key="a") != of(messages=[ASKED], prompt_cache_key="a")
    assert of(messages=[ASKED], prompt_cache_key="") == of(messages=[ASKED])


def test_a_prompt_is_told_by_its_start() -> None:
    assert of(prompt=f"{PREAMBLE}One.") == of(prompt=f"{PREAMBLE}Two.")
    assert of(prompt="One.") != of(prompt="Two.")


def test_without_a_user_all_messages_count() -> None:
    calls_something = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    assert len({of(messages=[SYSTEM]), of(messages=[SYSTEM, SAID]), of(messages=[SYSTEM, SAID, calls_something])}) == 3
