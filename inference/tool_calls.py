"""Puts the tool calls of one choice in order: they are numbered from 0 without a gap, and named once.

Upstreams number them from 0, from 1, all with 0 (Ollama) or not at all, and may repeat ids and names. A name may come
in pieces or after arguments, so a call is held until its name is the name of a tool.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.ids import uuid7

from .dialects import odd_json
from .words import TOOL_TEXT, object_of, text_of, without

Json = dict[str, Any]

FIELDS = frozenset({"index", "id", "type", "function", "custom", "name", "arguments"})
OLD = "function_call"  # the key of a call in OpenAI's older form


@dataclass(slots=True)
class ToolCall:
    """Holds a tool call as received so far.

    `key` is the upstream's number for it, `identity` the upstream's id; `pieces` are the non-empty pieces of its
    arguments. `held` has the other members of its fragments until its name is known, then it is None.
    """

    ordinal: int
    key: Any
    identity: str
    kind: str
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    held: Json | None = field(default_factory=dict)
    is_named: bool = False


class ToolCalls:
    """Holds the calls so far, and the `newest` one under each of the upstream's numbers."""

    __slots__ = ("_last_key", "_names", "all", "newest")

    def __init__(self, names: Collection[str] = ()) -> None:
        self.all: list[ToolCall] = []
        self.newest: dict[Any, ToolCall] = {}
        self._names = names  # of the request's tools
        self._last_key: Any = None

    def take(self, fragment: Json) -> tuple[Json, str] | None:
        """Returns a fragment in the client's form, and its text (name and arguments); None while its call is held.

        Most fragments are more arguments of a function, and are changed in place.
        """
        try:
            begun, called = self.newest[fragment["index"]], fragment["function"]
            piece = called["arguments"]
            goes_on = len(fragment) == 2 and len(called) == 1 and begun.kind == "function" and begun.held is None
            goes_on = goes_on and piece[:1] != "{"  # which may begin another call or repeat this one's arguments
        except (LookupError, TypeError):
            goes_on = False
        if not goes_on or type(piece) is not str:
            return self._take_odd(fragment)
        self._last_key, fragment["index"] = fragment["index"], begun.ordinal
        if piece:
            begun.pieces.append(piece)
        return fragment, piece

    def held(self) -> list[Json]:
        """Returns a last fragment for each call that is still held, for `take`. Their names are final now."""
        held = [call for call in self.all if call.held is not None]
        for call in held:
            call.is_named = True
        return [{"index": call.key, "id": call.identity, "type": call.kind} for call in held]

    def _take_odd(self, fragment: Mapping[str, Any]) -> tuple[Json, str] | None:
        key, identity = fragment.get("index"), text_of(fragment.get("id"))
        if not isinstance(key, int | str):  # some upstreams do not number calls: a new id starts a new call
            key = identity or self._last_key
        self._last_key = key
        call, kind = self._begun(key, identity), kind_of(fragment)
        name, piece = _name_and_piece(fragment, kind if call is None else call.kind)
        is_known = call is not None and bool(identity) and (call.identity, call.name) == (identity, name)
        if call is not None and is_known and piece == "".join(call.pieces):
            name = piece = ""  # the fragment only repeats its call
        if call is not None and piece and not name and piece == "".join(call.pieces) and _is_object(call.pieces):
            piece = ""  # a repetition as well: nothing can follow complete arguments
        if call is None or _is_another(call, identity, name, piece):
            call = self.newest[key] = ToolCall(len(self.all), key, identity, kind)
            name, piece = _name_and_piece(fragment, kind)
            self.all.append(call)
        if piece:
            call.pieces.append(piece)
        extras = without(fragment, FIELDS)
        if call.held is None:
            return {**extras, "index": call.ordinal, call.kind: {TOOL_TEXT[call.kind]: piece}}, piece
        call.held |= extras
        call.identity = call.identity or identity
        call.name = name if name.startswith(call.name) else call.name + name
        if call.is_named or self._is_complete(call.name):
            return self._head(call)
        return None

    def _head(self, call: ToolCall) -> tuple[Json, str]:
        """Returns the first fragment of a call, with all that was held. The id is replaced if another call has it."""
        is_taken = any(other.identity == call.identity for other in self.all[: call.ordinal])
        arguments, extras, call.held = "".join(call.pieces), call.held or {}, None
        identity = own_id() if is_taken else call.identity or own_id()
        called = {"name": call.name, TOOL_TEXT[call.kind]: arguments}
        head = {**extras, "index": call.ordinal, "id": identity, "type": call.kind, call.kind: called}
        return head, call.name + arguments

    def _is_complete(self, name: str) -> bool:
        """Tells whether a name is a tool's, or cannot become a tool's because the upstream changes names."""
        return name in self._names or (bool(name) and not any(each.startswith(name) for each in self._names))

    def missing_arguments(self) -> list[Json]:
        """Returns fragments for the functions without arguments, which must be JSON."""
        calls = [call for call in self.all if call.kind == "function" and not any(map(str.strip, call.pieces))]
        return [{"index": call.ordinal, "function": {"arguments": "{}"}} for call in calls]

    def _begun(self, key: Any, identity: str) -> ToolCall | None:
        """Returns the call that a fragment belongs to: by its id if several have this key, else the newest one."""
        newest = self.newest.get(key)
        if newest is not None and identity and newest.identity != identity:
            return next((tool for tool in self.all if (tool.key, tool.identity) == (key, identity)), newest)
        return newest


def own_id() -> str:
    """Makes an id for a call that has none, or that has the id of another call."""
    return f"call_{uuid7().hex}"


def called_in(fragment: Mapping[str, Any], kind: str) -> Json:
    """Returns the name and arguments in a call or a piece of one; some upstreams put them in the call itself."""
    return object_of(fragment.get(kind) or (fragment if kind not in fragment else None))


def old_call(message: Mapping[str, Any]) -> Json | None:
    """Returns the call of a message or a delta that calls a function the old way (`function_call`), as a tool call.

    Snowflake sends one with empty members next to each text, which is ignored.
    """
    called = object_of(message.get(OLD))
    return {"index": OLD, "function": called} if any(called.values()) else None


def _name_and_piece(fragment: Mapping[str, Any], kind: str) -> tuple[str, str]:
    called = called_in(fragment, kind)
    piece = called.get(TOOL_TEXT[kind])
    # Some upstreams send the arguments as an object rather than as text.
    return text_of(called.get("name")), orjson.dumps(piece).decode() if isinstance(piece, dict) else text_of(piece)


def _is_another(begun: ToolCall, identity: str, name: str, piece: str) -> bool:
    """Tells whether a fragment with the key of a call begins another call: Ollama numbers all calls 0.

    It does if it has a name and another id, or if it has a name and the arguments so far are complete. Some upstreams
    repeat id and name in every fragment, and some send a name in pieces.
    """
    if not name:
        return False
    if identity and begun.identity and identity != begun.identity:
        return True
    return bool(piece.strip() or name != begun.name) and begun.kind == "function" and _is_object(begun.pieces)


def _is_object(pieces: list[str]) -> bool:
    if not pieces or not pieces[-1].rstrip().endswith("}"):
        return False
    try:
        return isinstance(odd_json.loads("".join(pieces).encode()), dict)
    except ValueError:
        return False


def kind_of(tool_call: Mapping[str, Any]) -> str:
    """Returns `custom`, or `function` for any other type."""
    return "custom" if tool_call.get("type") == "custom" else "function"
