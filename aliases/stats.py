"""Statistics of an alias by its identity: a rename keeps them, a name created anew starts fresh."""

from datetime import date, timedelta
from typing import Any

from catalogue.routes import Snapshot

from .models import Alias


def of_alias(alias: Alias, *, days: int, today: date, catalogue: Snapshot) -> dict[str, Any]:
    """`{totals, breakdown}` of the last `days` UTC days, today included."""
    raise NotImplementedError((alias, today - timedelta(days - 1), catalogue))
