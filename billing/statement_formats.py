"""A statement's lines as CSV and as JSON lines, in blocks of text as they are ready to be sent.

Numbers are exact decimals, without an exponent, in both; in JSON they are strings, since JSON's numbers are floats.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

import orjson

from gateway.money import plain

from .statement import COLUMNS, Line, Value

BLOCK_CHARACTERS = 64 * 1024
# What makes a spreadsheet take a text for a formula, the full-width forms of East Asian input included.
FORMULA_STARTS = tuple("=+-@\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}")
FORMULA_STARTS += ("\N{FULLWIDTH COMMERCIAL AT}",)


def csv_blocks(lines: Iterable[Line], columns: Sequence[str] = COLUMNS) -> Iterator[str]:
    """A header and a row for each line (RFC 4180); what is unknown is an empty cell."""
    block = io.StringIO()
    writer = csv.writer(block)
    writer.writerow(columns)
    for line in lines:
        writer.writerow([_cell(line.get(column)) for column in columns])
        if block.tell() >= BLOCK_CHARACTERS:
            yield block.getvalue()
            block.seek(0)
            block.truncate()
    yield block.getvalue()


def jsonl_blocks(lines: Iterable[Line]) -> Iterator[str]:
    """An object for each line; what is unknown or does not apply is absent."""
    block, size = [], 0
    for line in lines:
        known = {name: _json(value) for name, value in line.items() if value is not None}
        text = orjson.dumps(known).decode() + "\n"
        block.append(text)
        size += len(text)
        if size >= BLOCK_CHARACTERS:
            yield "".join(block)
            block, size = [], 0
    yield "".join(block)


def _cell(value: Value) -> str:
    """Text that a spreadsheet would run gets an apostrophe in front; numbers are ours and stay as they are, -1 too."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case Decimal():
            return plain(value)
        case int():
            return str(value)
        case str():
            return f"'{value}" if value.startswith(FORMULA_STARTS) else value


def _json(value: Value) -> Value:
    return plain(value) if isinstance(value, Decimal) else value


class Format(NamedTuple):
    """How a statement is written, and what HTTP calls that."""

    blocks: Callable[[Iterable[Line]], Iterator[str]]
    content_type: str


FORMATS = {
    "csv": Format(csv_blocks, "text/csv; charset=utf-8"),
    "jsonl": Format(jsonl_blocks, "application/jsonl; charset=utf-8"),
}
