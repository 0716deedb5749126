"""Checks a request's values, member by member.

A check returns the value that it accepts. It raises a `fault` whose path begins at the value it was given; the caller
prepends the path of that value.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..errors import InvalidRequest
from ..server.turns import ITEMS_A_TURN, pause

Json = dict[str, Any]
T = TypeVar("T")

fault = InvalidRequest.of_field


def require(value: Any, kind: type, path: str, expected: str) -> Any:
    """Returns the value if it has this JSON type. Raises a fault at `path` that says what is `expected`."""
    if not isinstance(value, kind):
        raise fault(path, f"must be {expected}.")
    return value


def text_in(owner: Mapping[str, Any], name: str) -> str:
    """Returns a member that must be a string."""
    text = owner.get(name)
    if not isinstance(text, str):
        raise fault(f".{name}", "must be a string.")
    return text


def optional(owner: Mapping[str, Any], name: str, kind: type, expected: str) -> Any:
    """Returns a member that may be absent or null, and otherwise must have this JSON type."""
    value = owner.get(name)
    return value if value is None else require(value, kind, f".{name}", expected)


def each(items: list[Any], check: Callable[[Any], T], path: str = "") -> list[T]:
    """Checks each item, and lets other requests run in between. Returns what the checks return."""
    checked: list[T] = []
    try:
        for start in range(0, len(items), ITEMS_A_TURN):
            if start:
                pause()
            # The number of items that were accepted before a fault is the position of the fault.
            checked.extend(map(check, items[start : start + ITEMS_A_TURN]))
    except InvalidRequest as error:
        raise error.within(f"{path}[{len(checked)}]") from None
    return checked


def without_nulls(owner: Json, parts: Iterable[str] = ()) -> Json:
    """Returns the object without members that are null, and `parts` of it without theirs."""
    if None in owner.values():
        owner = {name: value for name, value in owner.items() if value is not None}
    for part in parts:
        inner = owner.get(part)
        if isinstance(inner, dict) and None in inner.values():
            owner = {**owner, part: {name: value for name, value in inner.items() if value is not None}}
    return owner
