"""Request bodies: read within bounds, parsed strictly, checked field by field.

A check returns what it accepts, and raises a `fault` with the path within what it was given; its caller adds the way
there.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import orjson
from django.conf import settings
from gunicorn.http.errors import ParseException
from rest_framework import serializers

from ..errors import InvalidRequest, RequestTooLarge, WorkerBusy
from ..server.turns import ITEMS_A_TURN, pause
from ..server.worker import MOST_TINY_CHUNKS, TINY_CHUNK_BYTES, TooManyTinyChunks

Json = dict[str, Any]
T = TypeVar("T")
BLOCK_BYTES = 64 * 1024
COUNT_ABOVE_BYTES = 1024 * 1024
QUOTE_LENGTH = 50
MAX_MEMBERS = 500  # of the object itself: each is looked at and copied several times on its way
MAX_CONTAINERS = 200_000  # objects and arrays
MAX_COMMAS = 1_000_000  # every scalar has one beside it
COUNTED_AT_ONCE = 256 * 1024
# orjson turns integers beyond 64 bits into floats. They have 19 digits and more.
_LONG = 19
_STEPS = (9, 6, 1)  # among every ninth byte a long integer has two digits in a row, among every sixth three
_EACH_DIGIT_A_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_STRING = re.compile(rb'"[^"]*"')
_LONG_INTEGER = re.compile(rb"[\[:,\s](-?\d{19,}+)(?![.eE])")
_SIXTY_FOUR_BITS = range(-(2**63), 2**64)
_LONGEST_OF_64_BITS = 20  # characters, of both ends

fault = InvalidRequest.of_field


def too_large() -> RequestTooLarge:
    """The 413, with the bound."""
    return RequestTooLarge(f"The request body exceeds the limit of {settings.GATEWAY_MAX_BODY_BYTES} bytes.")


class HeldBody:
    """One request's share of the bodies that its worker holds."""

    __slots__ = ("_bytes",)
    held_by_all = 0

    def __init__(self) -> None:
        self._bytes = 0

    def take(self, count: int) -> None:
        if HeldBody.held_by_all + count > settings.GATEWAY_MAX_BODIES_BYTES:
            raise WorkerBusy("This replica holds as many request bodies as it may. Nothing was billed: retry.")
        HeldBody.held_by_all += count
        self._bytes += count

    def release(self) -> None:
        HeldBody.held_by_all -= self._bytes
        self._bytes = 0


def read_body(environ: Mapping[str, Any], held: HeldBody | None = None) -> bytes:
    """The body of a WSGI request.

    Raises RequestTooLarge, WorkerBusy, and InvalidRequest where it is compressed or ends early.
    """
    encoding = environ.get("HTTP_CONTENT_ENCODING")
    if encoding and (encoding := encoding.strip()).lower() not in ("", "identity"):
        raise InvalidRequest(
            f"The request body has the Content-Encoding {encoding[:QUOTE_LENGTH]!r}: bodies are taken uncompressed."
        )
    stream = environ["wsgi.input"]
    declared = environ.get("CONTENT_LENGTH") or ""
    try:
        if declared:
            return _read_declared(stream, int(declared), held)
        if environ.get("HTTP_TRANSFER_ENCODING"):
            return _read_chunked(stream, held)
    except TooManyTinyChunks:
        rule = f"more than {MOST_TINY_CHUNKS} chunks of less than {TINY_CHUNK_BYTES} bytes"
        raise InvalidRequest(f"The request body has {rule}.") from None
    except (OSError, ParseException):  # the client stopped sending, left, or cut its chunks wrongly
        raise InvalidRequest("The request body could not be read to its end.") from None
    return b""


def _read_declared(stream: Any, length: int, held: HeldBody | None) -> bytes:
    reader = getattr(stream, "reader", stream)  # below gunicorn's `Body`, which copies what it hands on
    blocks = []
    while length > 0:
        block = reader.read(length)
        if not block:
            raise InvalidRequest("The request body ended before its Content-Length.")
        if held is not None:
            held.take(len(block))
        blocks.append(block)
        length -= len(block)
    return b"".join(blocks)


def _read_chunked(stream: Any, held: HeldBody | None) -> bytes:
    blocks, total = [], 0
    while block := stream.read(BLOCK_BYTES):
        total += len(block)
        if total > settings.GATEWAY_MAX_BODY_BYTES:
            stream.reader.req.force_close()  # gunicorn's: the answer says that the rest of the body is not read
            raise too_large()
        if held is not None:
            held.take(len(block))
        blocks.append(block)
        if len(block) == BLOCK_BYTES:
            pause()  # the next block may be there already
    return b"".join(blocks)


def parse_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object. Raises InvalidRequest."""
    _bound_counts(body)
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.") from None
    if not isinstance(parsed, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    if len(parsed) > MAX_MEMBERS:
        raise InvalidRequest(f"The request body has more than {MAX_MEMBERS} fields.")
    if _holds_an_integer_beyond_64_bits(body):
        raise InvalidRequest("The request body holds an integer beyond 64 bits.")
    return parsed


def _bound_counts(body: bytes) -> None:
    # parsed, short values take many times their size, and seconds
    if len(body) <= COUNT_ABOVE_BYTES:
        return
    if holds_more(body, b"{[", MAX_CONTAINERS):
        raise InvalidRequest(f"A request holds at most {MAX_CONTAINERS} objects and arrays.")
    if holds_more(body, b",", MAX_COMMAS):
        raise InvalidRequest(f"A request holds at most {MAX_COMMAS} values, counted by the commas between them.")


def holds_more(body: bytes, characters: bytes, limit: int) -> bool:
    """True where more than `limit` of these stand outside strings."""
    if sum(map(body.count, characters)) <= limit:
        return False
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    others = bytes(set(range(256)) - {*characters, *b'"'})
    found = within = 0  # within is 1 where a block begins inside a string
    for start in range(0, len(unescaped), COUNTED_AT_ONCE):
        block = unescaped[start : start + COUNTED_AT_ONCE]
        if b'"' in block:
            # Two quotes in a row change nothing, whether they are of one string or of two.
            parts = block.translate(None, others).replace(b'""', b"").split(b'"')
            found += sum(map(len, parts[within::2]))
            within = (within + len(parts) - 1) % 2
        elif not within:
            found += sum(map(block.count, characters))
        if found > limit:
            return True
        pause()
    return False


def _holds_an_integer_beyond_64_bits(valid: bytes) -> bool:
    for step in _STEPS:  # most bodies need no look at every byte
        if b"0" * (_LONG // step) not in valid[::step].translate(_EACH_DIGIT_A_ZERO):
            return False
    # Without its escapes a string holds no quote, and ends at the next one.
    unescaped = valid.replace(rb"\\", b"").replace(rb"\"", b"")
    found = _LONG_INTEGER.findall(_STRING.sub(b'""', unescaped))
    if max(map(len, found), default=0) > _LONGEST_OF_64_BITS:
        return True  # `int` takes seconds for millions of digits
    return not all(map(_SIXTY_FOUR_BITS.__contains__, map(int, found)))


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


class StrictField(serializers.Field[Any, Any, Any, Any]):
    """A value of one JSON type; DRF's own fields coerce "1" and 1."""

    default_error_messages = {"type": "must be {expected}."}
    types: tuple[type, ...] = ()
    expected = ""

    def to_internal_value(self, data: Any) -> Any:
        if type(data) not in self.types:
            self.fail("type", expected=self.expected)
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class TextField(StrictField):
    """A string."""

    types = (str,)
    expected = "a string"


class FlagField(StrictField):
    """A boolean."""

    types = (bool,)
    expected = "a boolean"


class NumberField(StrictField):
    """A number within closed bounds."""

    default_error_messages = {"minimum": "must be at least {bound}.", "maximum": "must be at most {bound}."}
    types: tuple[type, ...] = (int, float)
    expected = "a number"

    def __init__(self, *, minimum: float | None = None, maximum: float | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.minimum, self.maximum = minimum, maximum

    def to_internal_value(self, data: Any) -> Any:
        number = super().to_internal_value(data)
        if self.minimum is not None and not number >= self.minimum:
            self.fail("minimum", bound=self.minimum)
        if self.maximum is not None and not number <= self.maximum:
            self.fail("maximum", bound=self.maximum)
        return number


class WholeNumberField(NumberField):
    """A bounded integer."""

    types = (int,)
    expected = "an integer"


class ChoiceField(TextField):
    """A string out of a few."""

    default_error_messages = {"choice": "must be one of {choices}."}

    def __init__(self, choices: Iterable[str], **options: Any) -> None:
        super().__init__(**options)
        self.choices = tuple(choices)

    def to_internal_value(self, data: Any) -> Any:
        text = super().to_internal_value(data)
        if text not in self.choices:
            self.fail("choice", choices=", ".join(self.choices))
        return text


class ListField(StrictField):
    """An array."""

    types = (list,)
    expected = "an array"


class ObjectField(StrictField):
    """An object; `members` have one type."""

    types = (dict,)
    expected = "an object"

    def __init__(self, members: Mapping[str, type] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._members = members or {}

    def to_internal_value(self, data: Any) -> Any:
        members = super().to_internal_value(data)
        for name, kind in self._members.items():
            if not isinstance(members.get(name), kind | None):
                raise serializers.ValidationError({name: f"must be of the type {kind.__name__}."})
        return members


class CheckedField(StrictField):
    """A value that a function checks."""

    def __init__(self, check: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(**options)
        self._check = check

    def to_internal_value(self, data: Any) -> Any:
        try:
            return self._check(data)
        except InvalidRequest as error:
            raise error.within(f"{self.field_name}") from None


class Checks:
    """A request's serializer, and a shorter way to accept, which costs less than DRF's loop.

    A refusal is worded by the serializer. Null means absent; other fields pass on.
    """

    def __init__(self, serializer: serializers.Serializer[Any], *required: str) -> None:
        self.serializer = serializer
        self._checks = {name: field.to_internal_value for name, field in serializer.fields.items()}
        self._required = required  # the first field that most clients forget is the one that is named first

    def checked(self, body: Json) -> tuple[Json, Json]:
        """The members that are not null, and of them the serializer's fields."""
        present = {name: value for name, value in body.items() if value is not None}
        for name in self._required:
            if name not in present:
                raise InvalidRequest.of_field(name, "is required.")
        if not settings.GATEWAY_FASTPATH:
            return present, self.serializer.run_validation(present)
        try:
            fields = {name: self._checks[name](value) for name, value in present.items() if name in self._checks}
        except (InvalidRequest, serializers.ValidationError):
            fields = self.serializer.run_validation(present)  # raises the refusal
        return present, fields
