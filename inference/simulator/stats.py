"""How many calls came, how many their callers cut, how many are open: overall and for each model name."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from inference.simulator.http import CallerGoneError


@dataclass(slots=True)
class Counts:
    """`calls` received, `cut` by their caller before the answer was complete, `open` now."""

    calls: int = 0
    cut: int = 0
    open: int = 0


class Stats:
    """The counts of one running simulator. Greenlets never switch inside an update, so there is no lock."""

    def __init__(self) -> None:
        self._total = Counts()
        self._by_model: defaultdict[str, Counts] = defaultdict(Counts)

    @contextlib.contextmanager
    def call(self, model: str) -> Iterator[None]:
        """Count one call from its arrival to its end."""
        counted = (self._total, self._by_model[model])
        for counts in counted:
            counts.calls += 1
            counts.open += 1
        try:
            yield
        except CallerGoneError:
            for counts in counted:
                counts.cut += 1
            raise
        finally:
            for counts in counted:
                counts.open -= 1

    def read(self, model: str | None = None) -> dict[str, int]:
        """Return the counts of one model name, or of all calls."""
        if model is None:
            return asdict(self._total)
        return asdict(self._by_model.get(model, Counts()))

    def reset(self, model: str | None = None) -> None:
        """Forget what is past, of one model name or of all; open calls stay counted as open."""
        chosen = [self._total, *self._by_model.values()] if model is None else [self._by_model[model]]
        for counts in chosen:
            counts.calls = counts.cut = 0
