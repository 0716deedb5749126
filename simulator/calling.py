"""Writes tool calls as upstreams of OpenAI's form do: whole, or in the fragments of a stream."""

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from simulator import signing
from simulator.answers import ToolCall
from simulator.behaviour import Behaviour
from simulator.call import Call, Json


def whole(call: Call, tool_calls: Sequence[ToolCall]) -> list[Json] | Json:
    """Returns the calls of a whole answer."""
    return _listed(call, _whole(call, tool_calls))


def streamed(call: Call, tool_calls: Sequence[ToolCall]) -> Iterator[list[Json] | Json]:
    """Yields the `tool_calls` of each chunk."""
    if call.behaviour.whole_calls and tool_calls:
        yield _listed(
            call, [{**number(call, ordinal), **each} for ordinal, each in enumerate(_whole(call, tool_calls))]
        )
        return
    for ordinal, each in enumerate(tool_calls):
        for position, fragment in enumerate(_fragments(call.behaviour, each)):
            signed = {} if position else signing.of_call(call, ordinal, each)
            yield _listed(call, [{**number(call, ordinal), **_unwrapped(call, fragment), **signed}])


def _whole(call: Call, tool_calls: Sequence[ToolCall]) -> list[Json]:
    return [
        {**_unwrapped(call, _written(call.behaviour, each)), **signing.of_call(call, ordinal, each)}
        for ordinal, each in enumerate(tool_calls)
    ]


def _listed(call: Call, calls: list[Json]) -> list[Json] | Json:
    return calls[0] if call.behaviour.unlisted_calls and len(calls) == 1 else calls


def _unwrapped(call: Call, written: Json) -> Json:
    if not call.behaviour.flat_calls:
        return written
    return {**{name: value for name, value in written.items() if name != "function"}, **written["function"]}


def number(call: Call, ordinal: int) -> Json:
    """Returns the `index` of a call, or of a block of Messages."""
    match call.behaviour.index:
        case "none":
            return {}
        case "same":
            return {"index": 0}
        case "negative":
            return {"index": -1}
        case "one":
            return {"index": ordinal + 1}
    return {"index": ordinal}


def _written(behaviour: Behaviour, each: ToolCall) -> Json:
    arguments: Json | str = each.arguments
    if behaviour.object_arguments and not behaviour.cut_arguments:
        arguments = json.loads(each.arguments.strip() or "{}")
    return {**_identity(behaviour, each), "function": {"name": each.name, "arguments": arguments}}


def _identity(behaviour: Behaviour, each: ToolCall) -> Json:
    identity = {} if behaviour.no_call_ids else {"id": f"call_{each.identity}"}
    return {**identity, "type": "function"}


def _fragments(behaviour: Behaviour, each: ToolCall) -> Iterator[Json]:
    if behaviour.object_arguments:
        yield _written(behaviour, each)
        return
    half = len(each.name) // 2
    names: Sequence[str | None] = {
        "pieces": (each.name[:half], each.name[half:]),
        "late": (None, each.name),
        "growing": (each.name[:half], each.name),
        "repeated": (each.name,) * (1 + len(each.fragments)),
    }.get(behaviour.tool_name, (each.name,))
    identified = behaviour.tool_name in ("growing", "repeated")
    for position, (name, piece) in enumerate(zip_longest(names, ("", *each.fragments))):
        named = {} if name is None else {"name": name}
        is_identified = not position or (identified and name is not None)
        identity = _identity(behaviour, each) if is_identified else {}
        yield {**identity, "function": {**named, "arguments": piece or ""}}
    if behaviour.arguments_again and not behaviour.cut_arguments:
        yield {"function": {"arguments": each.arguments}}
