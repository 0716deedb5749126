"""What is wrong with a catalogue file, as lines that name file, entry, field and reason."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MOST_SHOWN = 20
_LONGEST_LABEL = 120


@dataclass(frozen=True, slots=True)
class Where:
    """An entry of a file: `models[3] acme/meta/llama (region FRPAR)`. An empty entry is the file itself."""

    file: str
    entry: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to put right. `field` is a path (`pricing.currency`), empty where the entry as a whole is meant."""

    where: Where
    field: str
    reason: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where.file, self.where.entry, self.field, self.reason) if part)


class CatalogueError(Exception):
    """The catalogue cannot be seeded; nothing was written. One line of text per reason."""


class BadCatalogue(CatalogueError):
    """The files are at fault."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults
        lines = [str(fault) for fault in faults[:MOST_SHOWN]]
        if len(faults) > MOST_SHOWN:
            lines.append(f"… and {len(faults) - MOST_SHOWN} more")
        super().__init__("\n".join(lines))


def label(value: object) -> str:
    """A value of a file as it may stand in a line: a short printable string, or nothing."""
    if not isinstance(value, str) or not value.isprintable():
        return ""
    return value if len(value) <= _LONGEST_LABEL else value[:_LONGEST_LABEL] + "…"


def flatten(detail: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The (path, reason) pairs of a DRF ValidationError's nested `detail`."""
    if isinstance(detail, dict):
        for key, inner in detail.items():
            yield from flatten(inner, path if key == "non_field_errors" else (*path, key))
    elif isinstance(detail, list):
        for position, inner in enumerate(detail):
            yield from flatten(inner, (*path, position) if isinstance(inner, dict) else path)
    else:
        yield path, str(detail)


def dotted(path: tuple[str | int, ...]) -> str:
    """`("regions", 0, "locode")` as `regions[0].locode`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{label(str(part))}" for part in path)
    return text.removeprefix(".")
