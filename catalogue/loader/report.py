"""What seeding did, in lines that people and programs can read."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from .prices import HeldPrice


@dataclass(slots=True)
class Counts:
    """Rows by what became of them."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.created + other.created,
            self.updated + other.updated,
            self.unchanged + other.unchanged,
            self.removed + other.removed,
        )

    @property
    def changed(self) -> int:
        """Rows written or removed."""
        return self.created + self.updated + self.removed


@dataclass(frozen=True, slots=True)
class SeedReport:
    """What was done, or in a dry run would have been. `changes` has a line for each row that is not as it was."""

    counts: dict[str, Counts]
    held: list[HeldPrice]
    changes: list[str] = field(default_factory=list)
    dry_run: bool = False

    @property
    def total(self) -> Counts:
        """All tables together."""
        return sum(self.counts.values(), Counts())

    def lines(self) -> Iterator[str]:
        """The report: a dry run's changes, held prices, one line a table, the total."""
        if self.dry_run:
            yield "dry run: nothing is written"
            yield from (f"would {change}" for change in self.changes)
        yield from map(str, self.held)
        for name, n in self.counts.items():
            yield f"{name}: {n.created} created, {n.updated} updated, {n.unchanged} unchanged, {n.removed} removed"
        n = self.total
        yield f"created {n.created}, updated {n.updated}, unchanged {n.unchanged}, removed {n.removed}"
