"""A conversation stays on one of several equal routes, by the part that all its requests share."""

import uuid
from typing import Any

import pytest

from inference.admission import conversation
from inference.authentication import Payer
from inference.call import Call, Shape

Json = dict[str, Any]
KEY = uuid.UUID(int=1)
SYSTEM: Json = {"role": "system", "content": "Be brief."}
ASKED: Json = {"role": "user", "content": "Who are you?"}
SAID: Json = {"role": "assistant", "content": "An echo."}
MARKED: Json = {"type": "text", "text": "Who are you?", "cache_control": {"type": "ephemeral"}}


TURNS: list[Json] = [SYSTEM, ASKED, SAID, {"role": "user", "content": "And now?"}]


def of(key: uuid.UUID = KEY, *, counts: bool = False, **body: Any) -> bytes | None:
    """Returns the conversation of a request with this body."""
    shape = Shape.COMPLETION if "prompt" in body else Shape.CHAT
    payer = Payer(key, uuid.UUID(int=2), "EUR", 1)
    return conversation(Call(shape, "auto/test/echo", body, is_count=counts), payer)


@pytest.mark.parametrize(
    "later",
    [
        {"messages": [*TURNS, SAID, {"role": "user", "content": "And then?"}]},
        {"messages": [SYSTEM, {"role": "user", "content": [MARKED]}, *TURNS[2:]]},
        {"messages": [SYSTEM, ASKED, SAID], "temperature": 1, "stream": True},
        {"messages": [SYSTEM, ASKED], "counts": True},
    ],
)
def test_a_conversation_is_recognised_by_its_beginning(later: Json) -> None:
    assert of(**later) == of(messages=TURNS)


@pytest.mark.parametrize(
    "other",
    [
        {"messages": TURNS[1:]},
        {"messages": [SYSTEM, {"role": "user", "content": "Who am I?"}, *TURNS[2:]]},
        {"messages": TURNS, "key": uuid.UUID(int=3)},
        {"messages": TURNS, "prompt_cache_key": "assistant"},
    ],
)
def test_another_beginning_or_key_is_another_conversation(other: Json) -> None:
    assert of(**other) not in (None, of(messages=TURNS))


@pytest.mark.parametrize("single", [{"messages": [ASKED]}, {"messages": [SYSTEM, ASKED, ASKED]}, {"prompt": "Who?"}])
def test_a_single_turn_is_no_conversation(single: Json) -> None:
    assert of(**single) is None
    assert of(**single, prompt_cache_key="") is None


def test_the_clients_own_cache_key_wins_over_what_is_said() -> None:
    kept = of(messages=[ASKED], prompt_cache_key="a")
    assert kept is not None
    assert kept == of(messages=TURNS, prompt_cache_key="a") == of(prompt="Who?", prompt_cache_key="a")
    assert kept != of(messages=[ASKED], prompt_cache_key="b")
    assert kept != of(uuid.UUID(int=3), messages=[ASKED], prompt_cache_key="a")
    assert of(messages=TURNS, prompt_cache_key="") == of(messages=TURNS)


def test_without_a_user_all_messages_count() -> None:
    calls_something = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    assert len({of(messages=[SAID]), of(messages=[SYSTEM, SAID]), of(messages=[SYSTEM, SAID, calls_something])}) == 3
