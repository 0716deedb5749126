"""Reads calls: what arrived, what it asks in each dialect, and the events in which its answer is streamed.

A token is a whitespace-separated word. A prompt's tokens are the words in the texts of its messages, including the
system's. Images, tool definitions and tool calls do not count; a token id counts as one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha1
from typing import Any

from simulator.behaviour import Behaviour
from simulator.http import Request

Json = dict[str, Any]

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_MARKER = re.compile(rb"<marker>(\d+)</marker>")


class RefusedError(Exception):
    """A real provider would answer the request with a 400."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param, self.code = message, param, code


class Kind(Enum):
    """Names the kinds of events. Faults count outputs and look for the finish."""

    STRUCTURE = auto()
    OUTPUT = auto()
    FINISH = auto()
    USAGE = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Event:
    """Holds one event of a stream: its data or literal text, and its name if the dialect names events."""

    kind: Kind
    data: Json | str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Holds a request with its body and the behaviour that it asks for."""

    request: Request
    body: Json
    model: str
    behaviour: Behaviour
    created: int

    @property
    def streams(self) -> bool:
        """Tells whether the caller wants events rather than one body."""
        return self.body.get("stream") is True

    @property
    def identity(self) -> str:
        """Returns twenty-four hex digits, the same for the same body."""
        return sha1(self.request.body, usedforsecurity=False).hexdigest()[:24]

    @property
    def marker(self) -> int | None:
        """Returns the number in `<marker>…</marker>`, anywhere in the body, which the usage repeats."""
        found = _MARKER.search(self.request.body)
        return None if found is None else int(found[1])

    @property
    def marked(self) -> Json:
        """Returns the member of a usage that repeats the marker."""
        return {} if self.marker is None else {"x_marker": self.marker}

    @property
    def received(self) -> Json:
        """Returns the request as it reached the simulator, for `describe`."""
        shown = {name: getattr(self.request, name) for name in ("method", "path", "query", "headers")}
        return {**shown, "body": self.body}


@dataclass(frozen=True, slots=True)
class Question:
    """Holds a call's question, in any dialect."""

    text: str
    prompt_tokens: int
    tool_result: str | None = None
    tools: Sequence[str] = ()
    may_call_tools: bool = True
    may_call_several: bool = True
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    script: str | None = None
    results: int = 0  # the number of tool results after the script


def count_tokens(text: str) -> int:
    """Counts the words of a text."""
    return len(text.split())


def chat_question(body: Json) -> Question:
    """Reads an OpenAI conversation."""
    messages = _messages(body)
    texts = [_text(message.get("content")) for message in messages]
    choice = body.get("tool_choice")
    forced = choice.get("function", {}).get("name") if isinstance(choice, dict) else None
    return Question(
        text=_last_text_of_user(messages, texts),
        prompt_tokens=sum(map(count_tokens, texts)),
        tool_result=_final_tool_result(messages, texts),
        tools=[forced]
        if forced
        else [tool["function"]["name"] for tool in body.get("tools") or () if "function" in tool],
        may_call_tools=choice != "none",
        may_call_several=body.get("parallel_tool_calls") is not False,
        max_tokens=_limit(body),
        stop=_stops(body),
        **_script(messages, texts, [int(message.get("role") == "tool") for message in messages]),
    )


def text_questions(body: Json) -> list[Question]:
    """Reads the prompts of a text completion; token ids are echoed as numbers."""
    limit, stops = _limit(body), _stops(body)
    texts = _texts_or_token_ids(body, "prompt")
    return [Question(text, count_tokens(text), may_call_tools=False, max_tokens=limit, stop=stops) for text in texts]


def embedded_texts(body: Json) -> list[str]:
    """Reads the inputs of an embeddings request."""
    return _texts_or_token_ids(body, "input")


def messages_question(body: Json, betas: str = "") -> Question:
    """Reads a conversation of Anthropic's Messages API, as strictly as the API does with these betas.

    Models since Claude Opus 4.8 accept system messages in mid-conversation without a beta; this model is older. Claude
    Code tries them first, and goes on without them if it is refused in exactly these words.
    """
    roles = {"user", "assistant", "system"} if "mid-conversation-system-" in betas else {"user", "assistant"}
    if not isinstance(body.get("max_tokens"), int):
        raise RefusedError("max_tokens: Field required")
    messages = _messages(body)
    for index, message in enumerate(messages):
        if message.get("role") == "system" and "system" not in roles:
            raise RefusedError(f"messages.{index}: role 'system' is not supported on this model")
        if message.get("role") not in roles:
            raise RefusedError(f'messages.{index}: Unexpected role "{message.get("role")}".')
    texts = [_text(message.get("content")) for message in messages]
    results = [list(_result_texts(message)) for message in messages]
    choice = body.get("tool_choice") or {}
    forced = choice.get("name")
    counted = [*texts, *(text for of_message in results for text in of_message), _text(body.get("system"))]
    return Question(
        text=_last_text_of_user(messages, texts),
        prompt_tokens=sum(map(count_tokens, counted)),
        tool_result=" ".join(results[-1]) if results[-1] else None,
        tools=[forced] if forced else [tool["name"] for tool in body.get("tools") or () if "name" in tool],
        may_call_tools=choice.get("type") != "none",
        may_call_several=choice.get("disable_parallel_tool_use") is not True,
        max_tokens=body["max_tokens"],
        stop=body.get("stop_sequences") or (),
        **_script(messages, texts, list(map(len, results))),
    )


def _messages(body: Json) -> list[Json]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise RefusedError("Invalid 'messages': expected a list with at least one message.", "messages")
    return messages


def _last_text_of_user(messages: Sequence[Json], texts: Sequence[str]) -> str:
    """Returns the last text that a user wrote, skipping messages that only have tool results."""
    written = [text for message, text in zip(messages, texts, strict=True) if message.get("role") == "user"]
    return next((text for text in reversed(written) if text), "")


def _script(messages: Sequence[Json], texts: Sequence[str], results: Sequence[int]) -> Json:
    """Returns the last script that a user wrote, and the number of tool results after it."""
    for position in reversed(range(len(messages))):
        found = _SCRIPT.search(texts[position]) if messages[position].get("role") == "user" else None
        if found is not None:
            return {"script": found[1], "results": sum(results[position:])}
    return {}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return " ".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _final_tool_result(messages: Sequence[Json], texts: Sequence[str]) -> str | None:
    """Returns the tool results that end an OpenAI conversation, or None if it does not end with one."""
    results: list[str] = []
    for message, text in zip(reversed(messages), reversed(texts), strict=True):
        if message.get("role") != "tool":
            break
        results.insert(0, text)
    return " ".join(results) if results else None


def _result_texts(message: Json) -> Iterator[str]:
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield _text(block.get("content"))


def _texts_or_token_ids(body: Json, name: str) -> list[str]:
    """Reads a field that is a text, a list of texts, a list of token ids, or a list of these; ids become numbers."""
    value = body.get(name)
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise RefusedError(f"Invalid '{name}': expected a text, or a list of texts or tokens.", name)
    items = [value] if isinstance(value[0], int) else value
    return [item if isinstance(item, str) else " ".join(map(str, item)) for item in items]


def _limit(body: Json) -> int | None:
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    return limit if isinstance(limit, int) else None


def _stops(body: Json) -> list[str]:
    stop = body.get("stop")
    return [stop] if isinstance(stop, str) else list(stop or ())
