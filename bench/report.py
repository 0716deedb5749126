"""Tables for a terminal."""

from collections.abc import Iterable
from dataclasses import dataclass

NAME_WIDTH = 62


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of the gateway's, and the pass-through's beside it."""

    name: str
    gateway: float
    pass_through: float

    @property
    def ratio(self) -> float:
        return self.gateway / self.pass_through

    @property
    def line(self) -> str:
        ratio = f"{self.ratio:10.2f}" if self.pass_through else f"{'-':>10}"
        return f"{self.name:<{NAME_WIDTH}}{_figure(self.gateway)}{_figure(self.pass_through)}{ratio}"


@dataclass(frozen=True, slots=True)
class Read:
    """A read at scale: the median through the server, its spread, and the part of it that the database took."""

    name: str
    p50_ms: float
    slowest_ms: float
    database_ms: float | None
    answered: str

    @property
    def line(self) -> str:
        database = f"{'-':>12}" if self.database_ms is None else _figure(self.database_ms)
        return f"{self.name:<{NAME_WIDTH}}{_figure(self.p50_ms)}{_figure(self.slowest_ms)}{database}   {self.answered}"


COMPARED_HEAD = f"{'':<{NAME_WIDTH}}{'gateway':>12}{'passthrough':>12}{'ratio':>10}"
READ_HEAD = f"{'':<{NAME_WIDTH}}{'p50 ms':>12}{'slowest':>12}{'database ms':>12}   answered"


def table(head: str, rows: Iterable[Compared] | Iterable[Read]) -> str:
    """The whole table as text."""
    return "\n".join([head, *(row.line for row in rows)])


def _figure(value: float) -> str:
    return f"{value:12,.0f}" if value >= 1000 else f"{value:12.2f}"
