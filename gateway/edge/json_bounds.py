"""Bounds the JSON of a client by looking at its bytes, before or after it is parsed."""

import re

from ..errors import InvalidRequest
from ..server.turns import pause

COUNT_ABOVE_BYTES = 1024 * 1024
MAX_CONTAINERS = 200_000  # objects and arrays
MAX_COMMAS = 1_000_000  # nearly every scalar has one next to it
COUNTED_AT_ONCE = 256 * 1024
# orjson turns integers beyond 64 bits into floats. They have 19 digits or more.
_LONG = 19
_STEPS = (9, 6, 1)  # a long integer covers two in a row of every ninth byte, and three of every sixth
_EACH_DIGIT_A_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_STRING = re.compile(rb'"[^"]*"')
_LONG_INTEGER = re.compile(rb"[\[:,\s](-?\d{19,}+)(?![.eE])")
_SIXTY_FOUR_BITS = range(-(2**63), 2**64)
_LONGEST_OF_64_BITS = 20  # characters of the smallest and of the largest one


def bound_counts(body: bytes) -> None:
    """Raises InvalidRequest if a large body holds too many values.

    Once they are parsed, short values take many times their size in memory, and seconds of time.
    """
    if len(body) <= COUNT_ABOVE_BYTES:
        return
    if holds_more(body, b"{[", MAX_CONTAINERS):
        raise InvalidRequest(f"The request body has too many objects and arrays (limit {MAX_CONTAINERS}).")
    if holds_more(body, b",", MAX_COMMAS):
        raise InvalidRequest(f"The request body has too many values (limit {MAX_COMMAS}).")


def holds_more(body: bytes, characters: bytes, limit: int) -> bool:
    """Tells whether more than `limit` of these characters stand outside strings."""
    if sum(map(body.count, characters)) <= limit:
        return False
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    others = bytes(set(range(256)) - {*characters, *b'"'})
    found = within = 0  # within is 1 if a block begins inside a string
    for start in range(0, len(unescaped), COUNTED_AT_ONCE):
        block = unescaped[start : start + COUNTED_AT_ONCE]
        if b'"' in block:
            # Two quotes in a row change nothing, whether one string has both or each has one.
            parts = block.translate(None, others).replace(b'""', b"").split(b'"')
            found += sum(map(len, parts[within::2]))
            within = (within + len(parts) - 1) % 2
        elif not within:
            found += sum(map(block.count, characters))
        if found > limit:
            return True
        pause()
    return False


def holds_an_integer_beyond_64_bits(valid: bytes) -> bool:
    """Tells whether valid JSON holds an integer beyond 64 bits, which orjson would change into a float."""
    for step in _STEPS:  # most bodies need no look at every byte
        if b"0" * (_LONG // step) not in valid[::step].translate(_EACH_DIGIT_A_ZERO):
            return False
    # Without its escapes a string holds no quote, and ends at the next one.
    unescaped = valid.replace(rb"\\", b"").replace(rb"\"", b"")
    found = _LONG_INTEGER.findall(_STRING.sub(b'""', unescaped))
    if max(map(len, found), default=0) > _LONGEST_OF_64_BITS:
        return True  # `int` takes seconds for millions of digits
    return not all(map(_SIXTY_FOUR_BITS.__contains__, map(int, found)))
