"""Reads JSON that some servers write and `orjson` refuses.

Servers in JavaScript and Python may cut a text between the two halves of a surrogate pair: one event ends in `\\ud83d`,
the next one begins with `\\ude00`. The halves are joined again; a half without its partner becomes U+FFFD, as in a
browser. Numbers that JSON does not have (`NaN`, `Infinity`) or that no float can hold (`1e400`) are read as null.
Control characters need not be escaped. A byte order mark, as from servers in .NET, is ignored.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

Path = tuple[str | int, ...]
FIRST_HALVES = ("\ud800", "\udbff")
SECOND_HALVES = ("\udc00", "\udfff")
MOST_DIGITS = 20  # of a 64-bit number, including its sign
PLACES = ("index", "output_index", "content_index")  # members that name the subject of a Messages or Responses event


def loads(data: bytes) -> Any:
    """Reads a JSON value that `orjson` can write again. Raises ValueError."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return _mapped(_loads_halves(data), _whole)
        except RecursionError:
            raise ValueError("nested too deep") from None


class HalfCharacters:
    """Joins characters that are cut between two events of one stream.

    An event with a text that ends in a first half is held until the next event of its choice, block or item arrives, or
    the stream ends.
    """

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: dict[Any, _HeldEvent] = {}  # by `_subject`

    def joined(self, data: bytes) -> list[bytes]:
        """Takes an event, and returns those that need not be held any more as JSON. A non-object is not changed."""
        try:
            return self._joined(data)
        except RecursionError:
            return [data]

    def _joined(self, data: bytes) -> list[bytes]:
        try:
            event = _loads_halves(data)
        except ValueError:
            event = None
        subject = _subject(event) if isinstance(event, dict) else None
        if subject is None:
            earlier, self.held = [*self.held.values()], {}
        else:
            earlier = [self.held.pop(subject)] if subject in self.held else []
            for each in earlier:
                each.take_second_halves(event)
        ready = [_dumps(each.event) for each in earlier]
        if not isinstance(event, dict):
            return [*ready, data]
        cut = [path for path, text in _texts(event) if FIRST_HALVES[0] <= text[-1:] <= FIRST_HALVES[1]]
        if cut and subject is not None:
            self.held[subject] = _HeldEvent(event, cut)
            return ready
        return [*ready, _dumps(event)]


@dataclass(slots=True)
class _HeldEvent:
    event: dict[str, Any]
    cut: list[Path]  # the paths of texts that end in a first half

    def take_second_halves(self, following: dict[str, Any]) -> None:
        """Moves the second halves at the start of the following event's texts to the end of this event's texts."""
        for path in self.cut:
            here, there = _holder(self.event, path), _holder(following, path)
            text = there[path[-1]] if there is not None else None
            if isinstance(text, str) and SECOND_HALVES[0] <= text[:1] <= SECOND_HALVES[1]:
                here[path[-1]] += text[0]
                there[path[-1]] = text[1:]


def _loads_halves(data: bytes) -> Any:
    """Reads a JSON value whose texts may hold single halves. Raises ValueError and RecursionError."""
    return json.loads(
        data.decode("utf-8-sig"), strict=False, parse_constant=lambda _: None, parse_float=_float, parse_int=_integer
    )


def _float(written: str) -> float | None:
    number = float(written)
    return number if math.isfinite(number) else None


def _integer(written: str) -> int | float | None:
    """Returns the number, as a float if it exceeds 64 bits, since `orjson` can write no larger integer."""
    number = int(written) if len(written) <= MOST_DIGITS else None
    return number if number is not None and -(2**63) <= number < 2**64 else _float(written)


def _subject(event: dict[str, Any]) -> Any:
    """Returns the choice or the place in the answer that an event adds to; None if it adds to several or none."""
    choices = event.get("choices")
    if isinstance(choices, list):
        return choices[0].get("index", 0) if len(choices) == 1 and isinstance(choices[0], dict) else None
    places = tuple(event.get(place) for place in PLACES)
    return None if places[:2] == (None, None) else places


def _texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(item, (*path, key))


def _holder(value: Any, path: Path) -> Any:
    """Returns the object or list that holds the text at the end of the path; None if there is no text."""
    try:
        for key in path[:-1]:
            value = value[key]
        return value if isinstance(value[path[-1]], str) else None
    except (LookupError, TypeError):
        return None


def _dumps(event: dict[str, Any]) -> bytes:
    return json.dumps(_mapped(event, _whole), ensure_ascii=False).encode()


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Returns the value with `change` applied to each of its texts."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(name): _mapped(item, change) for name, item in value.items()}
    return [_mapped(item, change) for item in value] if isinstance(value, list) else value


def _whole(text: str) -> str:
    """Joins neighbouring halves, and replaces every other half by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
