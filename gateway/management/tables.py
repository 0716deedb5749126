"""Formats the tables that commands print."""

import unicodedata
from collections.abc import Collection, Iterator, Sequence

GAP = "  "


def as_table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Collection[int] = ()) -> Iterator[str]:
    """Yields the lines of a table with aligned columns. `numbers` are the positions of right-aligned columns."""
    table = [heading, *rows]
    widths = [max(map(_width, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (
            " " * (width - _width(cell)) + cell if number in numbers else cell + " " * (width - _width(cell))
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield GAP.join(cells).rstrip()


def _width(text: str) -> int:
    """Returns how many columns of a terminal a text takes."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
