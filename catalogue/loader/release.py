"""Tells how old the shipped catalogue is."""

import functools
import re
from datetime import date, timedelta

from .files import DATA

OLD = timedelta(days=60)  # offers change every few weeks: docs/catalogue.md#known-gaps


@functools.cache
def released_on() -> date:
    """Returns the day on which the shipped catalogue was compiled.

    Reads only the head of the file of providers, because parsing all of it takes seconds.
    """
    head = (DATA / "providers.yaml").read_text(encoding="utf-8")
    (day,) = re.findall(r"^as_of: (\S+)$", head, re.MULTILINE)
    return date.fromisoformat(day)


def warning(today: date) -> str:
    """Returns a warning that the shipped catalogue is old, with advice; empty if it is not."""
    age = today - released_on()
    if age <= OLD:
        return ""
    return (
        f"The catalogue that ships with this version is of {released_on()}, {age.days} days ago: models were retired "
        "and prices changed since. Upgrade, or keep what you sell in a file of your own."
    )
