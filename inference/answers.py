"""Normalises whole answers like streamed ones: sets the fields that we own and keeps those that we do not know.

`logprobs` and a message's `content` and `refusal` are always present, and null if the upstream sent none, because
OpenAI's schema requires them.

`Aggregate` puts an answer together from a stream. In members of a delta that it does not know, strings and lists are
concatenated, lists of objects with an `index` are merged by it, and objects are merged by key. Of anything else, and
outside of deltas, the last value wins.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Protocol

import orjson

from .call import Shape
from .chunks import extras_of
from .deltas import CallDelta, Delta, FinishDelta, TextDelta
from .dialects.errors import MalformedReply
from .finishes import after_calls, finish_reason
from .tool_calls import called_in, kind_of, old_call, own_id
from .words import REASONING_FIELDS, TOOL_TEXT, calls_in, flatten_content, message_bytes, object_of, text_of, without

PLAIN = frozenset({"index", "delta", "text", "logprobs", "finish_reason"})  # members that most choices have
IDENTIFIERS = ("id", "type", "format", "thought_signature")
# Lists in the `logprobs` of a choice: each chunk has the lists of its own tokens, so they are concatenated.
LOGPROB_LISTS = ("content", "refusal", "tokens", "token_logprobs", "top_logprobs", "text_offset")


def chat_answer(
    answer: Mapping[str, Any], *, id: str, created: int, model: str, has_old_calls: bool = True
) -> dict[str, Any]:
    """Builds the `chat.completion` object, still without usage and metadata.

    Unless the client's API `has_old_calls`, a `function_call` becomes a tool call.
    Raises MalformedReply if there are no choices.
    """
    own = {"id": id, "object": "chat.completion", "created": created, "model": model}
    choices = [_chat_choice(choice, position, has_old_calls) for position, choice in enumerate(choices_of(answer))]
    return {**extras_of(answer), **own, "choices": choices}


def chat_output_bytes(answer: Mapping[str, Any]) -> int:
    """Counts the UTF-8 bytes of the text, reasoning and tool calls of a `chat.completion`, for the estimator."""
    return sum(message_bytes(choice["message"]) for choice in answer.get("choices", ()))


def choices_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the choices of a whole answer. Raises MalformedReply if there are none."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise MalformedReply("answered without choices")
    return choices


def _chat_choice(choice: Mapping[str, Any], position: int, has_old_calls: bool) -> dict[str, Any]:
    index = choice.get("index")
    message = {"refusal": None, **object_of(choice.get("message")), "role": "assistant"}
    flatten_content(message)
    content = message.get("content")
    message["content"] = content if isinstance(content, str) else None
    tool_calls = _tool_calls(calls_in(message))
    message.pop("tool_calls", None)
    if not (tool_calls or has_old_calls) and (called := old_call(message)):
        tool_calls = _tool_calls([called])
    if tool_calls:
        message["tool_calls"] = tool_calls
    return {
        "logprobs": None,
        **choice,
        "index": index if type(index) is int else position,
        "message": message,
        "finish_reason": after_calls(
            finish_reason(choice.get("finish_reason")) or "stop",
            tool_calls,
            has_function_call=bool(message.get("function_call") and old_call(message)),
        ),
    }


def _tool_calls(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Normalises the tool calls of a message and gives each an id of its own."""
    calls, ids = [], set[str]()
    for each in given:
        call = _tool_call(each)
        if call["id"] in ids:
            call["id"] = own_id()
        ids.add(call["id"])
        calls.append(call)
    return calls


def _tool_call(tool_call: Mapping[str, Any]) -> dict[str, Any]:
    kind = kind_of(tool_call)
    called, text = called_in(tool_call, kind), TOOL_TEXT[kind]
    name, given = called.get("name"), called.get(text)
    if kind == "function":
        given = given if isinstance(given, str) else orjson.dumps(given or {}).decode()
        given = given if given.strip() else "{}"
    return {
        **without(tool_call, ("index",) if kind in tool_call else ("index", "name", text)),
        "id": text_of(tool_call.get("id")) or own_id(),
        "type": kind,
        kind: {**called, "name": name if isinstance(name, str) else "", text: given if isinstance(given, str) else ""},
    }


class WholeFromDeltas(Protocol):
    """Puts a whole answer together from normalised deltas."""

    def add(self, delta: Delta) -> None:
        """Adds the next delta."""

    def answer(self) -> dict[str, Any]:
        """Returns the answer object. It is called once, after the last delta."""


class Aggregate:
    """Puts a chat or text completion together from normalised deltas."""

    def __init__(self, shape: Shape) -> None:
        self._is_chat = shape == Shape.CHAT
        self._answer: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._messages: dict[int, _GrowingObject] = {}  # the message of each choice

    def add(self, delta: Delta) -> None:
        """See WholeFromDeltas."""
        for chunk in (delta.chunk, *(delta.more or ())):
            self._answer |= chunk
        choice, message = delta.choice, self._messages.get(delta.choice["index"])
        if message is None:
            message = self._messages[choice["index"]] = _GrowingObject()
            self._choices[choice["index"]] = {"index": choice["index"], "finish_reason": None}
            self._add_members(choice)
        elif choice.get("logprobs") is not None or not choice.keys() <= PLAIN:
            self._add_members(choice)
        if isinstance(delta, TextDelta):
            pieces = message.get(delta.name)
            if isinstance(pieces, _GrowingText):
                pieces.append(delta.text)
            else:
                merged(message, {delta.name: delta.text})
        elif isinstance(delta, CallDelta):
            merged(message, {"tool_calls": [delta.fragment]})
        elif isinstance(delta, FinishDelta):
            self._choices[choice["index"]]["finish_reason"] = delta.reason
        if delta.other_members is not None:
            merged(message, delta.other_members)

    def answer(self) -> dict[str, Any]:
        """Returns the answer object, with its choices in order. It is called once, after the last delta."""
        return {**self._answer, "choices": [self._finished(choice) for _, choice in sorted(self._choices.items())]}

    def _add_members(self, choice: Mapping[str, Any]) -> None:
        known = self._choices[choice["index"]]
        known |= without(choice, PLAIN if self._is_chat else PLAIN.union(REASONING_FIELDS))
        if "logprobs" in choice:
            known["logprobs"] = _joined_logprobs(known.get("logprobs"), choice["logprobs"])

    def _finished(self, choice: dict[str, Any]) -> dict[str, Any]:
        said = plain_values(self._messages[choice["index"]])
        if not self._is_chat:
            text = said.get("content", "") + said.get("refusal", "")
            return {**choice, "text": text, **{name: said[name] for name in REASONING_FIELDS if name in said}}
        # An empty answer has an empty text, but one that consists of tool calls, for example, has null.
        message = {"role": "assistant", "content": None if said else "", **said}
        if "tool_calls" in message:
            calls = sorted(message["tool_calls"], key=itemgetter("index"))  # a name may come later than another call
            message["tool_calls"] = [without(call, {"index"}) for call in calls]
        return {**choice, "message": message}


class _GrowingText(list[str]):
    """Holds the pieces of a growing string, joined once: joining at each piece would copy the answer for each token."""


class _GrowingObject(dict[str, Any]):
    """Holds a growing object that is ours to change in place; an object from a chunk is copied into one first."""


class _GrowingIndexedList(dict[Any, Any]):
    """Holds a growing list of objects by their `index`, so that none has to be searched for.

    If two objects share an index but differ in type, the second one's key is both its index and its type.
    """


class _GrowingList(list[Any]):
    """Holds a growing list, with each object once: some upstreams repeat all earlier objects in each chunk."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__()
        self._seen: set[bytes] = set()
        self.take(items)

    def take(self, items: list[Any]) -> None:
        """Appends items, without the objects that the list has already."""
        for item in items:
            if isinstance(item, dict):
                written = orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
                if written in self._seen:
                    continue
                self._seen.add(written)
            self.append(item)


def plain_values(value: Any) -> Any:
    """Converts a growing value to plain JSON values, with its strings joined."""
    if isinstance(value, _GrowingText):
        return "".join(value)
    if isinstance(value, _GrowingIndexedList):
        return [plain_values(item) for item in value.values()]
    if isinstance(value, dict):
        return {name: plain_values(item) for name, item in value.items()}
    return [plain_values(item) for item in value] if isinstance(value, list) else value


def merged(known: Any, added: Any) -> Any:
    """Merges a delta's value into a known one, in place where possible. The cost is linear in `added`."""
    if isinstance(known, (str, _GrowingText)) and isinstance(added, str):
        pieces = known if isinstance(known, _GrowingText) else _GrowingText([known])
        pieces.append(added)
        return pieces
    if isinstance(known, _GrowingIndexedList | list) and isinstance(added, list):
        if _is_indexed(added) and (isinstance(known, _GrowingIndexedList) or _is_indexed(known)):
            return _merged_by_index(known, added)
        listed = known if isinstance(known, _GrowingList) else _GrowingList(plain_values(known))
        listed.take(added)
        return listed
    if isinstance(known, dict) and isinstance(added, dict):
        both = known if isinstance(known, _GrowingObject) else _GrowingObject(known)
        for name, value in added.items():
            # Identifiers are sent once, or repeated as a whole, but never in pieces.
            if name not in both:
                both[name] = _merged_by_index([], value) if _is_indexed(value) else value
            else:
                both[name] = value if name in IDENTIFIERS else merged(both[name], value)
        return both
    return added


def _is_indexed(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and type(item.get("index")) is int for item in value)


def _merged_by_index(known: Any, added: list[dict[str, Any]]) -> _GrowingIndexedList:
    numbered = (
        known
        if isinstance(known, _GrowingIndexedList)
        else _GrowingIndexedList({item["index"]: item for item in known})
    )
    for item in added:
        key: Any = item["index"]
        if key in numbered and numbered[key].get("type") != item.get("type", numbered[key].get("type")):
            key = (key, item["type"])
        numbered[key] = merged(numbered[key], item) if key in numbered else item
    return numbered


def _joined_logprobs(known: Any, added: Any) -> Any:
    if not isinstance(known, dict) or not isinstance(added, dict):
        return known if added is None else added
    joined = {**known, **added}
    for name in LOGPROB_LISTS:
        if isinstance(known.get(name), list):
            joined[name] = known[name]
            joined[name] += added[name] if isinstance(added.get(name), list) else []
    return joined
