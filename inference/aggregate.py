"""A whole answer put together from a stream, so that the budgets mean the same for both.

Known fields go by table. In what is unknown within a delta, strings concatenate, lists of objects numbered by `index`
merge by it, objects merge by key, else the last wins; outside of deltas the last wins.
"""

from collections.abc import Mapping
from typing import Any

from .call import Endpoint
from .chunks import without
from .plain_chunks import PlainChunk, Surroundings
from .text_chunks import SPOKEN

IDENTIFIERS = ("id", "type", "format")
# Fields of a choice that are complete lists in every chunk and belong one behind the other.
LOGPROB_LISTS = ("content", "refusal", "tokens", "token_logprobs", "top_logprobs", "text_offset")


class Aggregate:
    """Folds normalised chunks into the answer that a whole request gets."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._is_chat = endpoint == Endpoint.CHAT
        self._spoken = () if self._is_chat else SPOKEN
        self._answer: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._around: Surroundings | None = None

    def add_plain(self, plain: PlainChunk) -> None:
        """Takes in a text in known surroundings: between two in the same ones nothing but the text is new."""
        around = plain.around
        if around is not self._around:
            self.add(plain.chunk)
            self._around = around
            return
        choice = self._choices[around.index]
        said = choice["message"] if self._is_chat else choice
        said[around.field] = merged(said[around.field], plain.text.decode())

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Takes the next chunk in."""
        self._around = None
        self._answer |= without(chunk, {"choices"})
        for choice in chunk["choices"]:
            self._add_choice(choice)

    def answer(self) -> dict[str, Any]:
        """The answer object, its choices in order; nothing is added to it any more."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        return {**self._answer, "choices": [self._finished(choice) for choice in choices]}

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        known = self._choices.setdefault(choice["index"], {"index": choice["index"]})
        known |= without(choice, {"index", "delta", "logprobs", "finish_reason", *self._spoken})
        known["finish_reason"] = choice["finish_reason"] or known.get("finish_reason")
        if "logprobs" in choice:
            known["logprobs"] = _joined_logprobs(known.get("logprobs"), choice["logprobs"])
        if self._is_chat:
            known["message"] = merged(known.get("message", {}), without(choice["delta"], {"role"}))
        for name in self._spoken:
            if isinstance(choice.get(name), str):
                known[name] = merged(known.get(name, ""), choice[name])

    def _finished(self, choice: dict[str, Any]) -> dict[str, Any]:
        if not self._is_chat:
            return choice | {name: whole(choice[name]) for name in self._spoken if name in choice}
        message = {"role": "assistant", "content": None, **whole(choice["message"])}
        if "tool_calls" in message:
            message["tool_calls"] = [without(tool_call, {"index"}) for tool_call in message["tool_calls"]]
        return {**choice, "message": message}


class _Pieces(list[str]):
    """A string that is still growing: joined at each piece, a long answer would be copied once for each token."""


def whole(value: Any) -> Any:
    """The value with its strings joined."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value


def merged(known: Any, added: Any) -> Any:
    """What a delta makes of what there is, which it may grow."""
    if isinstance(known, (str, _Pieces)) and isinstance(added, str):
        pieces = known if isinstance(known, _Pieces) else _Pieces([known])
        pieces.append(added)
        return pieces
    if isinstance(known, dict) and isinstance(added, dict):
        both = dict(known)
        for name, value in added.items():
            # An identifier is sent once or repeated whole, never in pieces.
            whole = name not in known or name in IDENTIFIERS
            both[name] = value if whole else merged(known[name], value)
        return both
    if _is_indexed(known) and _is_indexed(added):
        return _merged_by_index(known, added)
    return added


def _is_indexed(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and type(item.get("index")) is int for item in value)


def _merged_by_index(known: list[dict[str, Any]], added: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_index = {item["index"]: item for item in known}
    for item in added:
        index = item["index"]
        earlier = without(by_index[index], {"index"}) if index in by_index else {}
        by_index[index] = {"index": index, **merged(earlier, without(item, {"index"}))}
    return list(by_index.values())


def _joined_logprobs(known: Any, added: Any) -> Any:
    if not isinstance(known, dict) or not isinstance(added, dict):
        return known if added is None else added
    joined = {**known, **added}
    for name in LOGPROB_LISTS:
        if isinstance(known.get(name), list):
            joined[name] = known[name]
            joined[name] += added[name] if isinstance(added.get(name), list) else []
    return joined
