"""Bodies are read as the standard library reads JSON, and their contents are counted before they are parsed."""

import json
import math
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.edge.bodies import MAX_MEMBERS, parse_object
from gateway.edge.json_bounds import COUNTED_AT_ONCE, MAX_COMMAS, MAX_CONTAINERS, holds_more
from gateway.errors import InvalidRequest

EDGES = [2**63, 2**64, 10**18, 10**19, 10**20]
digits = st.text("0123456789", min_size=1, max_size=25)
whole = st.sampled_from(EDGES).flatmap(lambda edge: st.integers(edge - 2, edge + 2)) | st.integers()
integers = st.tuples(st.sampled_from(["", "-"]), whole.map(abs)).map(lambda parts: f"{parts[0]}{parts[1]}")
fractions = st.tuples(integers, st.just("."), digits).map("".join)
exponents = st.tuples(integers | fractions, st.sampled_from(["e", "E-", "E+", "e0", "e-000"]), digits).map("".join)
numbers = integers | fractions | exponents.filter(lambda number: math.isfinite(float(number)))
texts = st.text('"\\/,:[]{} -.eE019\n', max_size=60) | st.text() | st.tuples(st.text(), integers).map("".join)
strings = st.tuples(texts, st.booleans()).map(lambda pair: json.dumps(pair[0], ensure_ascii=pair[1]))
spaces = st.sampled_from(["", " ", "\n", "\t\r\n  "])


def listed(items: st.SearchStrategy[str], opening: str, closing: str) -> st.SearchStrategy[str]:
    spaced = st.tuples(spaces, items, spaces).map("".join)
    return st.lists(spaced, min_size=1, max_size=4).map(lambda found: opening + ",".join(found) + closing)


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return listed(st.tuples(strings, spaces, st.just(":"), spaces, values).map("".join), "{", "}")


scalars = numbers | strings | st.sampled_from(["true", "false", "null"])
bodies = objects(st.recursive(scalars, lambda inner: listed(inner, "[", "]") | objects(inner), max_leaves=8))


@given(bodies)
@example('{"a": 18446744073709551615, "b": -9223372036854775808}')
@example('{"a":[18446744073709551616]}')
@example('{"a": -9223372036854775809}')
@example('{"a": 1' + "0" * 5000 + "e-5000}")
@example('{"a": ' + "1" * 300 + "}")
@example('{"a": 1e30, "b": 12345678901234567890.5, "c": 0.12345678901234567890123, "d": 1e-00000000000000000000001}')
@example(r'{"\\": "\\\",99999999999999999999,\"", "\\\\": [1]}')
def test_a_body_is_read_as_json_and_refused_only_for_an_integer_beyond_64_bits(body: str) -> None:
    beyond = []

    def integer(digits: str) -> Any:
        if len(digits) > 25 or not -(2**63) <= int(digits) < 2**64:
            beyond.append(digits)
            return None
        return int(digits)

    expected = json.loads(body, parse_int=integer)
    if beyond:
        with pytest.raises(InvalidRequest, match="64 bits"):
            parse_object(body.encode())
    else:
        assert parse_object(body.encode()) == expected


def test_values_are_counted_before_they_are_parsed() -> None:
    """The second text has commas without values, so it is not JSON, but it is refused for their number."""
    assert len(parse_object(b'{"input": [0' + b",0" * MAX_COMMAS + b"]}")["input"]) == MAX_COMMAS + 1
    with pytest.raises(InvalidRequest, match=str(MAX_COMMAS)):
        parse_object(b'{"input": [' + b", " * (MAX_COMMAS + 1))


def test_objects_and_arrays_are_counted_before_they_are_parsed() -> None:
    """Blocks, tools and messages of a few bytes take seconds to parse and to check."""
    blocks = b",".join([b'{"type":"text"}'] * MAX_CONTAINERS)
    with pytest.raises(InvalidRequest, match=str(MAX_CONTAINERS)):
        parse_object(b'{"messages": [{"role": "user", "content": [' + blocks + b"]}]}")


def test_the_fields_of_a_body_are_counted() -> None:
    """Each field costs microseconds in each copy that is made of a request."""
    fields = {f"k{number}": number for number in range(MAX_MEMBERS)}
    assert parse_object(json.dumps(fields).encode()) == fields
    with pytest.raises(InvalidRequest, match=f"more than {MAX_MEMBERS} fields"):
        parse_object(json.dumps({**fields, "model": "a"}).encode())


@pytest.mark.parametrize(
    "text", ["," * (MAX_COMMAS + 1), "a, " * (MAX_COMMAS + 1), "{[" * MAX_CONTAINERS], ids=lambda text: text[:3]
)
def test_what_stands_in_a_text_is_no_value(text: str) -> None:
    assert parse_object(json.dumps({"input": text}).encode()) == {"input": text}


@given(bodies, st.integers(0, 60))
@example(r'{"\\": "\"{[,", "a": ["\\\",", 1]}', 8)
def test_characters_are_counted_outside_strings_wherever_a_block_ends(body: str, before_its_end: int) -> None:
    padded = b" " * (COUNTED_AT_ONCE - before_its_end) + body.encode()
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", body)
    for characters in (b",", b"{["):
        count = sum(map(outside.count, characters.decode()))
        assert not holds_more(padded, characters, count)
        assert count == 0 or holds_more(padded, characters, count - 1)
