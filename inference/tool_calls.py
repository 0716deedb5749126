"""Puts the tool calls of one choice in order: they are numbered from 0 without a gap, and named once.

Upstreams number them from 0, from 1, all alike (Ollama) or not at all, and repeat ids and names or do not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.ids import uuid7

from .words import TOOL_TEXT, object_of, text_of, without

Json = dict[str, Any]

FIELDS = frozenset({"index", "id", "type", "function", "custom"})


@dataclass(slots=True)
class ToolCall:
    """Holds what has come of a tool call.

    `key` is what the upstream numbers it by, `identity` the id that it gave; `pieces` are its arguments.
    """

    ordinal: int
    key: Any
    identity: str
    kind: str
    name: str
    pieces: list[str] = field(default_factory=list)


class ToolCalls:
    """Holds the calls so far, and the `newest` under each of the upstream's numbers."""

    __slots__ = ("_last_key", "all", "newest")

    def __init__(self) -> None:
        self.all: list[ToolCall] = []
        self.newest: dict[Any, ToolCall] = {}
        self._last_key: Any = None

    def take(self, fragment: Json) -> tuple[Json, str]:
        """Returns a fragment as clients know it, and its words: the name of a call that begins, and arguments.

        Nearly all are more arguments of a function, and are changed in place.
        """
        try:
            begun, called = self.newest[fragment["index"]], fragment["function"]
            piece = called["arguments"]
            goes_on = len(fragment) == 2 and len(called) == 1 and begun.kind == "function"
        except (LookupError, TypeError):
            goes_on = False
        if not goes_on or type(piece) is not str:
            return self._take_odd(fragment)
        self._last_key, fragment["index"] = fragment["index"], begun.ordinal
        begun.pieces.append(piece)
        return fragment, piece

    def _take_odd(self, fragment: Mapping[str, Any]) -> tuple[Json, str]:
        key, identity = fragment.get("index"), text_of(fragment.get("id"))
        if not isinstance(key, int | str):  # some upstreams number nothing: a new id starts a new call
            key = identity or self._last_key
        self._last_key = key
        extras = without(fragment, FIELDS)
        begun = self._begun(key, identity)
        if begun is not None:
            name, piece = _name_and_piece(fragment, begun.kind)
            is_same = bool(identity) and identity == begun.identity and name == begun.name
            if is_same and piece == "".join(begun.pieces):
                piece = ""  # it only repeats its call
            if not name or not _is_another(begun, identity, name, piece):
                begun.pieces.append(piece)
                return {**extras, "index": begun.ordinal, begun.kind: {TOOL_TEXT[begun.kind]: piece}}, piece
            if identity == begun.identity:
                identity = ""  # another call needs one of its own
        kind = kind_of(fragment)
        name, piece = _name_and_piece(fragment, kind)
        call = self.newest[key] = ToolCall(len(self.all), key, identity, kind, name, [piece])
        self.all.append(call)
        head = {"index": call.ordinal, "id": identity or f"call_{uuid7().hex}", "type": kind}
        return {**extras, **head, kind: {"name": name, TOOL_TEXT[kind]: piece}}, name + piece

    def missing_arguments(self) -> list[Json]:
        """Returns fragments for functions that never sent any, since arguments must end as JSON."""
        calls = [call for call in self.all if call.kind == "function" and not any(call.pieces)]
        return [{"index": call.ordinal, "function": {"arguments": "{}"}} for call in calls]

    def _begun(self, key: Any, identity: str) -> ToolCall | None:
        """Finds the call that a fragment goes on with: by its id if several came under one key, else the newest."""
        newest = self.newest.get(key)
        if newest is not None and identity and newest.identity != identity:
            return next((tool for tool in self.all if (tool.key, tool.identity) == (key, identity)), newest)
        return newest


def _name_and_piece(fragment: Mapping[str, Any], kind: str) -> tuple[str, str]:
    called = object_of(fragment.get(kind))
    piece = called.get(TOOL_TEXT[kind])
    # Some upstreams send arguments as the object itself.
    return text_of(called.get("name")), orjson.dumps(piece).decode() if isinstance(piece, dict) else text_of(piece)


def _is_another(begun: ToolCall, identity: str, name: str, piece: str) -> bool:
    """Tells whether a fragment under the key of a call begins another: Ollama numbers all of an answer's calls 0.

    Another id with a name does, and a name with arguments behind those that are complete. Some upstreams repeat id and
    name with every fragment, and some name a tool in pieces.
    """
    if not name:
        return False
    if identity and begun.identity and identity != begun.identity:
        return True
    return bool(piece.strip() or name != begun.name) and begun.kind == "function" and _is_object(begun.pieces)


def _is_object(pieces: list[str]) -> bool:
    if not pieces[-1].rstrip().endswith("}"):
        return False
    try:
        return isinstance(orjson.loads("".join(pieces)), dict)
    except orjson.JSONDecodeError:
        return False


def kind_of(tool_call: Mapping[str, Any]) -> str:
    """`custom` or `function`, as which any other counts."""
    return "custom" if tool_call.get("type") == "custom" else "function"
