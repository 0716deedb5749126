"""Makes customers and records for tests that stay in the process, with the product's own functions."""

import itertools
from dataclasses import replace
from decimal import Decimal
from typing import Any

from accounts import keys
from accounts.models import Account, ApiKey
from billing.accounts import open_account
from billing.ledger.unsettled import COLUMNS, RequestColumns, RouteTerms, UnsettledGeneration
from billing.models import FROZEN, Generation
from billing.usage.verify import Verification, verify
from catalogue.models import ProviderFailure, ProviderMinute, RouteHour
from catalogue.pricing import Price, Rates, Usage, cost_of
from catalogue.routing import health, route_failures, snapshot
from gateway.money import ExactDecimalField
from inference.dialects import read_usage

EUR_PRICE = Price(currency="EUR", prompt=Decimal("0.60"), completion=Decimal("1.20"))
# For prompts of more than 1000 tokens, the prompt costs twice the price and the completion 1.5 times.
TIERED_PRICE = replace(EUR_PRICE, tiers=(Price("EUR", Decimal("1.20"), Decimal("1.80"), above_prompt_tokens=1000),))
NO_EXCHANGE = Rates(account=Decimal(1), eur=Decimal(1))
SMALL = Usage(uncached_prompt=1000, completion=200)  # costs 0.00084 at EUR_PRICE

_numbers = itertools.count(1)


def new_account(name: str | None = None, *, credit: str | None = "100", currency: str = "EUR") -> Account:
    """Opens an account with its opening credit."""
    amount = None if credit is None else Decimal(credit)
    return open_account(name or f"account {next(_numbers)}", currency=currency, credit=amount)


def new_key(account: Account, name: str = "test", **options: Any) -> tuple[ApiKey, str]:
    """Issues a key and returns it with its token."""
    return keys.issue(account, name=name, **options)


def served(account: Account, usage: Usage = SMALL, price: Price = EUR_PRICE, **columns: Any) -> Generation:
    """Builds the unsaved record of one answered request, as `settle` takes it; `priced=False` leaves out its cost."""
    cost = cost_of(price, usage, NO_EXCHANGE) if columns.pop("priced", True) else None
    money = {} if cost is None else {"prompt_cost": cost.prompt, "completion_cost": cost.completion}
    totals = {} if cost is None else {"cost": cost.total, "cost_eur": cost.eur}
    usual: dict[str, Any] = {
        "account": account,
        "key": keys.find(account, "test") or new_key(account)[0],
        "endpoint": Generation.Endpoint.CHAT,
        "ending": Generation.Ending.FINISHED,
        "provider": "sim",
        "model": "test/echo",
        "region": "FRPAR",
        "routing_mode": "explicit",
        "providers_attempted": ["sim"],
        "uncached_prompt_tokens": usage.uncached_prompt,
        "cache_read_tokens": usage.cache_read,
        "cache_write_5m_tokens": usage.cache_write_5m,
        "cache_write_1h_tokens": usage.cache_write_1h,
        "completion_tokens": usage.completion,
        "reasoning_tokens": usage.reasoning,
        "prompt_tokens": usage.prompt,
        "interrupted": False,
        "usage_estimated": False,
        "price_currency": price.currency,
        "prompt_price": price.prompt,
        "completion_price": price.completion,
        "cache_read_price": price.cache_read,
        "cache_write_price": price.cache_write,
        "cache_write_1h_price": price.cache_write_1h,
        "price_tiers": price.frozen_tiers,
        "account_rate": NO_EXCHANGE.account,
        "eur_rate": NO_EXCHANGE.eur,
        "currency": account.currency,
        "duration_ms": 800,
    }
    return Generation(**{**usual, **money, **totals, **columns})


def unsettled(generation: Generation, *, quota_region: int | None = None) -> UnsettledGeneration:
    """Wraps the record as a worker does to settle it."""
    kept: Any = generation.frozen
    names = [name for name in COLUMNS if name not in ("terms_id", *RequestColumns._fields)]
    shared = {name: getattr(kept if name in FROZEN else generation, name) for name in names}
    terms = RouteTerms(
        price=generation.price,
        rates=Rates(kept.account_rate, kept.eur_rate),
        energy=generation.energy_factors,
        eu_sovereign=bool(generation.eu_sovereign),
        quota_region=quota_region,
        columns={name: str(value) if isinstance(value, Decimal) else value for name, value in shared.items()},
    )
    return UnsettledGeneration(RequestColumns(*(_as_kept(generation, name) for name in RequestColumns._fields)), terms)


def _as_kept(generation: Generation, name: str) -> Any:
    field, value = Generation._meta.get_field(name), getattr(generation, name)
    return field.to_units(value) if isinstance(field, ExactDecimalField) else value


def mismatches(account: Account | None = None) -> list[str]:
    """Returns the mismatches that `verify` finds, without its summary."""
    found = verify(None if account is None else account.pk, read_usage)
    return [line for line in found if not isinstance(line, Verification)]


def forget_health() -> None:
    """Drops what other tests have noted in this process; otherwise it would be written with the next notes."""
    health.flush()
    route_failures.flush()
    ProviderMinute.objects.all().delete()
    ProviderFailure.objects.all().delete()
    RouteHour.objects.all().delete()
    health.look()
    health._probes.clear()


def forget_snapshot() -> None:
    """Drops this process's copy of the catalogue; the next `refresh` loads a new one."""
    snapshot._current = None
