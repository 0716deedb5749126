"""Framing events as server-sent events, in all the ways that upstreams do it."""

import orjson

from inference.simulator.behaviour import Behaviour
from inference.simulator.call import Event


def frame(event: Event, behaviour: Behaviour) -> bytes:
    """Write one event."""
    lines = [b": ping", b""] if behaviour.comments else []
    if event.name:
        lines.append(b"event: " + event.name.encode())
    prefix = b"data:" if behaviour.comments else b"data: "
    lines += [prefix + line for line in _data(event, behaviour).split(b"\n")]
    return _joined([*lines, b"", b""], behaviour)


def comment(behaviour: Behaviour) -> bytes:
    """Write a keep-alive comment."""
    return _joined([b": ping", b"", b""], behaviour)


def _data(event: Event, behaviour: Behaviour) -> bytes:
    if isinstance(event.data, str):
        return event.data.encode()
    return orjson.dumps(event.data, option=orjson.OPT_INDENT_2 if behaviour.multiline else None)


def _joined(lines: list[bytes], behaviour: Behaviour) -> bytes:
    return (b"\r\n" if behaviour.crlf else b"\n").join(lines)
