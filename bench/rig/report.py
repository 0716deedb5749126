"""Formats tables for a terminal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NAME_WIDTH = 62
LEAST_CALLS = 0.5  # from which a system call is named


@dataclass(frozen=True, slots=True)
class Compared:
    """Holds a figure of the gateway's, and the pass-through's for comparison."""

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
    """Holds a read at scale: the median through the server, its spread, and the database's part of it."""

    name: str
    p50_ms: float
    slowest_ms: float
    database_ms: float | None
    answered: str

    @property
    def line(self) -> str:
        database = f"{'-':>12}" if self.database_ms is None else _figure(self.database_ms)
        return f"{self.name:<{NAME_WIDTH}}{_figure(self.p50_ms)}{_figure(self.slowest_ms)}{database}   {self.answered}"


@dataclass(frozen=True, slots=True)
class Counts:
    """Holds a request's system calls (none without strace), round trips and context switches."""

    name: str
    system_calls: Mapping[str, float]
    pass_through_calls: Mapping[str, float]
    round_trips: Sequence[float]  # to PostgreSQL, to Redis, and the awaited ones to Redis
    switches: float
    pass_through_switches: float

    @property
    def line(self) -> str:
        calls = [_total(self.system_calls), _total(self.pass_through_calls)]
        figures = [*self.round_trips, self.switches, self.pass_through_switches]
        return f"{self.name:<{NAME_WIDTH}}{''.join(calls)}{''.join(map(_figure, figures))}"

    @property
    def dearest_calls(self) -> str:
        ordered = sorted(self.system_calls.items(), key=lambda call: -call[1])
        return ", ".join(f"{name} {count:.1f}" for name, count in ordered if count >= LEAST_CALLS)


@dataclass(frozen=True, slots=True)
class Goal:
    """Holds a figure and its upper or lower limit."""

    name: str
    figure: float
    most: float | None = None
    least: float | None = None

    @property
    def line(self) -> str:
        if self.most is not None:
            return self._line("<=", self.most, is_met=self.figure <= self.most)
        assert self.least is not None
        return self._line(">=", self.least, is_met=self.figure >= self.least)

    def _line(self, sign: str, goal: float, *, is_met: bool) -> str:
        return f"{self.name:<{NAME_WIDTH}}{_figure(self.figure)}  {sign}{_figure(goal)}{'' if is_met else '  MISSED'}"


GOAL_HEAD = f"{'':<{NAME_WIDTH}}{'gateway':>12}{'goal':>16}"
COMPARED_HEAD = f"{'':<{NAME_WIDTH}}{'gateway':>12}{'passthrough':>12}{'ratio':>10}"
COUNTS_COLUMNS = ("calls", "passthrough", "PostgreSQL", "Redis", "awaited", "switches", "passthrough")
COUNTS_HEAD = " " * NAME_WIDTH + "".join(f"{column:>12}" for column in COUNTS_COLUMNS)
READ_HEAD = f"{'':<{NAME_WIDTH}}{'p50 ms':>12}{'slowest':>12}{'database ms':>12}   answered"


def table(head: str, rows: Iterable[Compared] | Iterable[Read] | Iterable[Counts] | Iterable[Goal]) -> str:
    """Returns the whole table as text."""
    return "\n".join([head, *(row.line for row in rows)])


def _figure(value: float) -> str:
    return f"{value:12,.0f}" if value >= 1000 else f"{value:12.2f}"


def _total(calls: Mapping[str, float]) -> str:
    return _figure(sum(calls.values())) if calls else f"{'-':>12}"
