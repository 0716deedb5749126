"""Computes statistics of an alias by its id, so that a new name keeps them."""

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from billing.usage.statistics import Days, GroupColumn, Row, Scope, Totals, breakdown
from catalogue.routing.routes import Snapshot
from gateway.money import to_json

from .models import Alias


def of_alias(alias: Alias, *, days: int, today: date, catalogue: Snapshot) -> dict[str, Any]:
    """Returns totals and breakdown of the last `days` UTC days, as the API shows them."""
    rows = rows_of(alias, days=days, today=today)
    return {
        "totals": _figures(sum((row.totals for row in rows), Totals())),
        "breakdown": [_represented(row, catalogue) for row in rows],
    }


def rows_of(alias: Alias, *, days: int, today: date) -> list[Row]:
    """Returns a row for each provider, model and region in the last `days` UTC days."""
    scope = Scope(alias.account_id, alias_id=alias.pk)
    period = Days(today - timedelta(days=days - 1), today)
    return breakdown(scope, period, GroupColumn.PROVIDER, GroupColumn.MODEL, GroupColumn.REGION)


def _represented(row: Row, catalogue: Snapshot) -> dict[str, Any]:
    provider, model = row.provider or "", row.model or ""
    offer = catalogue.offers.get((provider, model))
    name = {"display_name": offer.name} if offer is not None and offer.name else {}
    named = {"provider": provider, "model": f"{provider}/{model}", "region": row.region, **name}
    return named | _figures(row.totals)


def _figures(totals: Totals) -> dict[str, int | float]:
    # The API requires every figure, so an unknown one is 0.
    return {
        "requests": totals.requests,
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "total_tokens": totals.tokens,
        "cost": to_json(totals.cost or Decimal(0)),
        "carbon_gco2e": to_json(totals.carbon_gco2e or Decimal(0)),
    }
