"""Checks of a request's values, member by member.

A check returns the value that it accepts. It raises a `fault` whose path begins at the value it was given; the caller
adds the way there.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..errors import InvalidRequest
from ..server.turns import ITEMS_A_TURN, pause

Json = dict[str, Any]
T = TypeVar("T")

fault = InvalidRequest.of_field


def require(value: Any, kind: type, path: str, expected: str) -> Any:
    """The value, of a JSON type."""
    if not isinstance(value, kind):
        raise fault(path, f"must be {expected}.")
    return value


def text_in(owner: Mapping[str, Any], name: str) -> str:
    """A required string."""
    text = owner.get(name)
    if not isinstance(text, str):
        raise fault(f".{name}", "must be a string.")
    return text


def optional(owner: Mapping[str, Any], name: str, kind: type, expected: str) -> Any:
    """A member that may be absent."""
    value = owner.get(name)
    return value if value is None else require(value, kind, f".{name}", expected)


def each(items: list[Any], check: Callable[[Any], T], path: str = "") -> list[T]:
    """The items, checked; other requests run in between."""
    checked: list[T] = []
    try:
        for start in range(0, len(items), ITEMS_A_TURN):
            if start:
                pause()
            # what has been taken before a fault stays, and so tells its position
            checked.extend(map(check, items[start : start + ITEMS_A_TURN]))
    except InvalidRequest as error:
        raise error.within(f"{path}[{len(checked)}]") from None
    return checked


def without_nulls(owner: Json, parts: Iterable[str] = ()) -> Json:
    """The object without null members, its own and those of `parts`."""
    if None in owner.values():
        owner = {name: value for name, value in owner.items() if value is not None}
    for part in parts:
        inner = owner.get(part)
        if isinstance(inner, dict) and None in inner.values():
            owner = {**owner, part: {name: value for name, value in inner.items() if value is not None}}
    return owner
