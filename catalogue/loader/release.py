"""The age of the catalogue that ships with the product."""

import functools
import re
from datetime import date, timedelta

from .files import DATA

OLD = timedelta(days=60)  # offers change every few weeks: docs/catalogue.md#known-gaps


@functools.cache
def released_on() -> date:
    """The day on which what ships was gathered, from the head of its list of providers: the whole takes seconds."""
    head = (DATA / "providers.yaml").read_text(encoding="utf-8")
    (day,) = re.findall(r"^as_of: (\S+)$", head, re.MULTILINE)
    return date.fromisoformat(day)


def warning(today: date) -> str:
    """Says that what ships is old, and what to do; empty while it is not."""
    age = today - released_on()
    if age <= OLD:
        return ""
    return (
        f"The catalogue that ships with this version is of {released_on()}, {age.days} days ago: models have ended and "
        "prices changed since. Upgrade, or keep what you sell in a file of your own."
    )
