"""Makes an account with a month of traffic that was never sent, so that the demo's pages have something to show.

It uses the product's own admission and settlement with Django's clock turned back, so `verify_ledger` passes.
"""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from unittest import mock
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from accounts import keys
from accounts.models import Account, ApiKey
from aliases import changes
from aliases.resolve import resolve
from aliases.targets import Target
from billing.accounts import open_account
from billing.ledger import booking as ledger
from billing.ledger import credits
from billing.ledger.unsettled import terms_of
from billing.models import Generation
from billing.usage import rollups
from billing.usage.request_failures import FailureLog
from catalogue.pricing import Usage
from catalogue.routing import snapshot
from gateway.errors import InsufficientCredits, ProviderError
from gateway.fastpath.http_client import UpstreamAttempt
from gateway.ids import first_uuid7
from gateway.observing.request_events import RequestEvent
from inference.admission import AdmittedRequest, needs_of
from inference.authentication import Payer
from inference.call import Call
from inference.dialects import DIALECTS
from inference.generation import Delivery, record
from inference.wire_forms import WIRE_FORMS

NAME = "Sample data"
DAYS = 30
REQUESTS = 400  # take about a second
CHAT, EMBEDDING = Generation.Endpoint.CHAT, Generation.Endpoint.EMBEDDING
Ending = Generation.Ending
ENDINGS = {Ending.FINISHED: 400, Ending.CLIENT_LEFT: 6, Ending.STALLED: 3, Ending.COST_UNRESOLVABLE: 1}


@dataclass(frozen=True, slots=True)
class Habit:
    """Describes a request that an account repeats. Tokens are typical counts; `weight` is its relative frequency."""

    key: str
    model: str
    prompt: int
    completion: int
    weight: int
    endpoint: Generation.Endpoint = CHAT


HABITS = (
    Habit("production", "alias/assistant", 9000, 700, 10),
    Habit("production", "alias/summaries", 30000, 900, 5),
    Habit("production", "scaleway/openai/gpt-oss-120b", 4000, 1200, 4),
    Habit("search-index", "mistral/mistralai/mistral-embed", 60000, 0, 4, EMBEDDING),
    Habit("laptop-ada", "mistral/mistralai/codestral-2508/FRPAR", 14000, 1500, 3),
    Habit("laptop-ada", "scaleway/qwen/qwen3-235b-a22b-instruct-2507", 6000, 1800, 2),
)


def is_possible() -> bool:
    """Tells whether sample data can be made. PostgreSQL uses its own clock, which would date the whole month today."""
    return connection.vendor == "sqlite"


def create(name: str, owner_email: str, requests: int = REQUESTS) -> Account:
    """Makes an account with keys, aliases and the requests of the last 30 days, from the shipped catalogue."""
    snapshot.refresh()
    now = timezone.now()
    start = now - timedelta(days=DAYS)
    draw = random.Random(7)  # noqa: S311  # draws a story, guards nothing
    with transaction.atomic():  # a commit for each request would take half a minute
        account = _opened(name, owner_email, start)
        _serve(account, draw, sorted(_moment(draw, start, now) for _ in range(requests)))
        _fail(account, now)
    rollups.advance(1_000_000)
    return account


@contextmanager
def clock_at(moment: datetime) -> Iterator[None]:
    """Stops Django's clock, and with it the product's, at a moment."""
    with mock.patch.object(timezone, "now", return_value=moment):
        yield


def _opened(name: str, owner_email: str, start: datetime) -> Account:
    with clock_at(start - timedelta(days=4)):
        account = open_account(name, credit=Decimal(40), owner_email=owner_email)
        for key, lifetime in {"production": "never", "search-index": "1y", "hackathon": "30d"}.items():
            keys.issue(account, name=key, lifetime=lifetime)
    with clock_at(start):
        for key, lifetime in {"laptop-ada": "90d", "staging": "180d"}.items():
            keys.issue(account, name=key, lifetime=lifetime)
    with clock_at(start - timedelta(days=2)):
        changes.create(account.pk, "assistant", Target("mistral", "mistralai/mistral-medium-3.5", "FRPAR"))
        summaries = Target("ovhcloud", "mistralai/mistral-small-3.2-24b-instruct", "FRGRV")
        changes.create(account.pk, "summaries", summaries)
    return account


def _moment(draw: random.Random, start: datetime, now: datetime) -> datetime:
    while True:
        day = start + timedelta(days=draw.randrange(DAYS + 1))
        moment = day.replace(hour=min(23, max(0, round(draw.gauss(13, 3)))), minute=draw.randrange(60))
        if start < moment < now - timedelta(minutes=5) and (moment.weekday() < 5 or draw.random() < 0.2):
            return moment + timedelta(seconds=draw.randrange(60), milliseconds=draw.randrange(1000))


def _serve(account: Account, draw: random.Random, moments: list[datetime]) -> None:
    """Serves the requests in order. Half-way, the assistant is moved to another provider and credit is added."""
    half = len(moments) // 2
    keys_by_name = {key.name: key for key in account.keys.all()}
    for number, moment in enumerate(moments):
        if number == half:
            with clock_at(moment):
                target = Target("scaleway", "mistralai/mistral-medium-3.5", "FRPAR")
                changes.change(account.pk, "assistant", target=target)
                credits.grant(account.pk, Decimal(60), "invoice 2026-1041")
        habit = draw.choices(HABITS, [habit.weight for habit in HABITS])[0]
        with clock_at(moment):
            _request(account, keys_by_name[habit.key], draw, habit, moment)
    ApiKey.objects.bulk_update(keys_by_name.values(), ["last_used_at"])


def _request(account: Account, key: ApiKey, draw: random.Random, habit: Habit, moment: datetime) -> None:
    catalogue = snapshot.current()
    form = next(form for form in WIRE_FORMS if form.endpoint == habit.endpoint)
    call = Call(form.shape, habit.model, {"messages": [{"role": "user", "content": str(moment)}]})
    payer = Payer(key.pk, account.pk, account.currency, 1)
    needs = needs_of(form, call, payer)
    found = resolve(habit.model, account_id=account.pk, needs=needs, snapshot=catalogue, now=moment)
    seconds = draw.uniform(0.4, 9) if habit.completion else draw.uniform(0.1, 0.4)
    started = time.monotonic() - seconds
    admitted = AdmittedRequest(
        form,
        call,
        call,
        DIALECTS[found.route.upstream.dialect],
        payer,
        found,
        terms_of(catalogue, found.route, account.currency),
        (found.route.upstream.slug,),
        RequestEvent("POST", id=UUID(int=first_uuid7(moment).int | 0x7 << 76 | 0x2 << 62 | draw.getrandbits(60))),
        started=started,
    )
    ending = draw.choices(list(ENDINGS), list(ENDINGS.values()))[0] if habit.endpoint == CHAT else Ending.FINISHED
    usage = Usage(_about(draw, habit.prompt), completion=_about(draw, habit.completion))
    outcome = Delivery(ending, first_output_at=started + min(seconds, 0.3) if habit.endpoint == CHAT else None)
    cut = ending not in (Ending.FINISHED, Ending.COST_UNRESOLVABLE)
    ledger.book(record(admitted, outcome, usage, usage_estimated=cut).generation(), using="default")
    key.last_used_at = moment


def _about(draw: random.Random, tokens: int) -> int:
    return round(tokens * draw.lognormvariate(0, 0.5))


def _fail(account: Account, now: datetime) -> None:
    """Logs many requests without credit on the day before, and a failure of a provider just now."""
    key = account.keys.get(name="production")
    log, mistral = FailureLog(), "mistral/mistralai/mistral-medium-3.5/FRPAR"
    spent = [(now - timedelta(days=1), InsufficientCredits(), 0)] * 14
    words = f"Provider 'mistral' answered with HTTP 429: Requests rate limit exceeded for {mistral}."
    for moment, error, upstream in (*spent, (now, ProviderError(words), 429)):
        event = RequestEvent(
            "POST",
            "chat/completions",
            began_at=moment.timestamp(),
            account_id=account.pk,
            key_id=key.pk,
            model="alias/assistant",
            route=mistral if upstream else "",
            attempts=[UpstreamAttempt("mistral", mistral, status=upstream)] if upstream else [],
        )
        event.answered(error.status, error)
        event.complete()
        log.note(event)
    log.flush()
