"""Lets apps above `operations` add checks to `doctor`. They register them in `AppConfig.ready()`."""

from collections.abc import Callable


class CheckFailed(Exception):
    """Describes a fault and what to do about it."""


class CheckDoubtful(Exception):
    """Describes something that may be intended, and what to do if it is not."""


# Each check by its name. It returns what it found to be in order, or raises one of the exceptions above.
more_checks: dict[str, Callable[[], str]] = {}
