"""Makes customers and served requests for tests of pages with the product's functions, so that the ledger adds up."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from accounts import keys
from accounts.models import Account, ApiKey, Membership, User
from billing.accounts import open_account
from billing.ledger import booking as ledger
from billing.models import Generation, RequestFailure
from billing.usage.request_failures import FailureLog
from catalogue.pricing import Price, Rates, Usage, cost_of
from gateway.errors import ApiError, NotFound
from gateway.ids import uuid7
from gateway.observing.request_events import RequestEvent

MEMBER = "member@example.com"


def open_for(*emails: str, name: str = "Acme", credit: str | None = "100", currency: str = "EUR") -> Account:
    """Opens an account with its members."""
    account = open_account(name, currency=currency, credit=None if credit is None else Decimal(credit))
    for email in emails:
        user = User.objects.filter(email=email).first() or User.objects.create_user(email)
        Membership.objects.create(user=user, account=account)
    return account


def key_of(account: Account) -> ApiKey:
    """Returns the account's key named `test`."""
    return keys.find(account, "test") or keys.issue(account, name="test")[0]


def serve(account: Account, *, priced: bool = True, **overrides: Any) -> Generation:
    """Settles one request: by default 1,000 tokens in and 200 out at 0.60 EUR per 1,000,000."""
    usage = Usage(uncached_prompt=1000, completion=200)
    price = Price(currency="EUR", prompt=overrides.pop("price", Decimal("0.6")), completion=Decimal("0.6"))
    cost = cost_of(price, usage, Rates(Decimal(1), Decimal(1)))
    money = {"prompt_cost": cost.prompt, "completion_cost": cost.completion, "cost": cost.total, "cost_eur": cost.eur}
    columns: dict[str, Any] = {
        "account": account,
        "key": key_of(account),
        "created_at": timezone.now(),
        "endpoint": Generation.Endpoint.CHAT,
        "ending": Generation.Ending.FINISHED,
        "provider": "sim",
        "model": "demo/echo",
        "region": "FRPAR",
        "routing_mode": "explicit",
        "uncached_prompt_tokens": usage.uncached_prompt,
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "interrupted": False,
        "usage_estimated": False,
        "price_currency": price.currency,
        "prompt_price": price.prompt,
        "completion_price": price.completion,
        "account_rate": Decimal(1),
        "eur_rate": Decimal(1),
        "currency": account.currency,
        "energy_per_token_wh": Decimal("0.00021"),
        "grid_intensity": 44,
        "energy_wh": Decimal("0.252"),
        "carbon_gco2e": Decimal("0.011088"),
        "duration_ms": 800,
    }
    generation = Generation(**{**columns, **(money if priced else {}), **overrides})
    ledger.book(generation, using="default")
    return generation


def repeat(record: Generation, times: int) -> None:
    """Writes `times` more records like this one, a millisecond apart, without ledger entries."""
    values = {field.attname: getattr(record, field.attname) for field in Generation._meta.concrete_fields}
    Generation.objects.bulk_create(
        Generation(**values | {"id": uuid7(), "created_at": record.created_at + timedelta(milliseconds=number)})
        for number in range(1, times + 1)
    )


def fail(account: Account | None, error: ApiError | None = None, **facts: Any) -> RequestFailure:
    """Notes and writes one refused request of the account (404 by default), as a worker does."""
    error = error or NotFound("Provider 'sim' does not offer model 'test/nowhere'.", param="model")
    key_id = None if account is None else key_of(account).pk
    account_id = None if account is None else account.pk
    event = RequestEvent("POST", "chat/completions", account_id=account_id, key_id=key_id, **facts)
    event.answered(error.status, error)
    event.complete()
    log = FailureLog()
    log.note(event)
    log.flush()
    return RequestFailure.objects.get(pk=event.id)
