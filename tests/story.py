"""A month of two accounts, made by the product's own verbs on days past: what screenshots show and axe looks at.

`tell` runs where the gateway's database is (tests.pages.told). A month on SQLite only: settlements in PostgreSQL go by
its own clock, and there all of it is today.
"""

import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from unittest import mock
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from accounts import invitations, keys
from accounts.models import Account, ApiKey, Membership, User
from accounts.rate_limits import Budgets
from aliases import changes
from aliases.models import Alias
from aliases.resolve import resolve
from aliases.targets import Target
from billing import ledger, rollups
from billing.accounts import open_account
from billing.models import Generation
from billing.request_failures import FailureLog, RequestFailure
from billing.unsettled import terms_of
from catalogue import snapshot
from catalogue.pricing import Usage
from dashboard.invitations import link
from gateway.errors import InsufficientCredits, ProviderError
from gateway.ids import first_uuid7
from gateway.request_events import RequestEvent, UpstreamAttempt
from inference.admission import Admitted, purpose_of
from inference.authentication import Payer
from inference.call import Call
from inference.dialects import DIALECTS
from inference.generation import Outcome, record
from inference.wire_forms import WIRE_FORMS
from tests.browser import PASSWORD
from tests.pages import MEMBER, NEWCOMER, OWNER, STAFF

DAYS = 30
CHAT, EMBEDDING = Generation.Endpoint.CHAT, Generation.Endpoint.EMBEDDING
Ending = Generation.Ending
ENDINGS = {Ending.FINISHED: 400, Ending.CLIENT_LEFT: 6, Ending.STALLED: 3, Ending.COST_UNRESOLVABLE: 1}


@dataclass(frozen=True, slots=True)
class Habit:
    """What an account asks for again and again. Tokens are typical counts, `weight` is how often."""

    key: str
    model: str
    prompt: int
    completion: int
    weight: int
    endpoint: Generation.Endpoint = CHAT


HABITS = (
    Habit("production", "alias/assistant", 9000, 700, 10),
    Habit("production", "alias/summaries", 30000, 900, 5),
    Habit("production", "auto/openai/gpt-oss-120b", 4000, 1200, 4),
    Habit("search-index", "mistral/mistralai/mistral-embed", 60000, 0, 4, EMBEDDING),
    Habit("laptop-ada", "mistral/mistralai/codestral-2508/FRPAR", 14000, 1500, 3),
    Habit("laptop-ada", "scaleway/qwen/qwen3-235b-a22b-instruct-2507", 6000, 1800, 2),
)


def tell(requests: int) -> None:
    """Makes it all, and prints what the pages' addresses need as JSON. `requests` is how many there were."""
    snapshot.refresh()
    now = timezone.now()
    start = now - timedelta(days=DAYS)
    account = _opened(start)
    aliases = _aliases(account, start)
    draw = random.Random(7)
    moments = sorted(_moment(draw, start, now) for _ in range(requests))
    with transaction.atomic():  # as many commits would take half a minute
        _serve(account, draw, moments)
    _second_account(start)
    _people(account)
    rollups.advance(1_000_000)
    invitation = account.invitations.get()
    newest = Generation.objects.filter(account=account).latest("created_at")
    told = {
        "account": account.pk,
        "alias": aliases[0].pk,
        "key": keys.find(account, "staging"),
        "generation": newest.public_id,
        "failure": _fail(account, now).request_id,
        "membership": account.membership_set.get(user__email=MEMBER).pk,
        "invitation": link(invitation),
    }
    sys.stdout.write(json.dumps(told, default=_plain))


def _plain(value: object) -> str:
    return str(value.pk if isinstance(value, ApiKey) else value)


@contextmanager
def _at(moment: datetime) -> Iterator[None]:
    """Django's clock, and with it the product's, stands at this moment."""
    with mock.patch.object(timezone, "now", return_value=moment):
        yield


def _opened(start: datetime) -> Account:
    with _at(start - timedelta(days=4)):
        account = open_account("Northwind", credit=Decimal(40), owner_email=OWNER)
        for name, lifetime in {"production": "never", "search-index": "1y", "hackathon": "30d"}.items():
            keys.issue(account, name=name, lifetime=lifetime)
    with _at(start):
        for name, lifetime in {"laptop-ada": "90d", "staging": "180d"}.items():
            keys.issue(account, name=name, lifetime=lifetime)
    return account


def _aliases(account: Account, start: datetime) -> list[Alias]:
    with _at(start - timedelta(days=2)):
        return [
            changes.create(account.pk, name, Target(*target))
            for name, target in {
                "assistant": ("mistral", "mistralai/mistral-medium-3.5", "FRPAR"),
                "summaries": ("ovhcloud", "mistralai/mistral-small-3.2-24b-instruct", "FRGRV"),
            }.items()
        ]


def _moment(draw: random.Random, start: datetime, now: datetime) -> datetime:
    """A time of these days, in the daytime, and seldom at a weekend."""
    while True:
        day = start + timedelta(days=draw.randrange(DAYS + 1))
        moment = day.replace(hour=min(23, max(0, round(draw.gauss(13, 3)))), minute=draw.randrange(60))
        if start < moment < now - timedelta(minutes=5) and (moment.weekday() < 5 or draw.random() < 0.2):
            return moment + timedelta(seconds=draw.randrange(60), milliseconds=draw.randrange(1000))


def _serve(account: Account, draw: random.Random, moments: list[datetime]) -> None:
    """The requests in their order; half-way the assistant moves to another provider, and credit is added."""
    half = len(moments) // 2
    for number, moment in enumerate(moments):
        if number == half:
            with _at(moment):
                target = Target("scaleway", "mistralai/mistral-medium-3.5", "FRPAR")
                changes.change(account.pk, "assistant", target=target)
                ledger.grant(account.pk, Decimal(60), "invoice 2026-1041")
        habit = draw.choices(HABITS, [habit.weight for habit in HABITS])[0]
        with _at(moment):
            _request(account, draw, habit, moment)


def _request(account: Account, draw: random.Random, habit: Habit, moment: datetime) -> None:
    key = keys.find(account, habit.key)
    assert key is not None
    catalogue = snapshot.current()
    form = next(form for form in WIRE_FORMS if form.endpoint == habit.endpoint)
    call = Call(form.shape, habit.model, {"messages": [{"role": "user", "content": str(moment)}]})
    payer = Payer(key.pk, account.pk, account.currency, Decimal(1), Budgets(0, 0))
    purpose = purpose_of(form, call, payer)
    found = resolve(habit.model, account_id=account.pk, purpose=purpose, snapshot=catalogue, now=moment)
    seconds = draw.uniform(0.4, 9) if habit.completion else draw.uniform(0.1, 0.4)
    started = time.monotonic() - seconds
    admitted = Admitted(
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
    outcome = Outcome(ending, first_output_at=started + min(seconds, 0.3) if habit.endpoint == CHAT else None)
    cut = ending not in (Ending.FINISHED, Ending.COST_UNRESOLVABLE)
    ledger.settle(record(admitted, outcome, usage, usage_estimated=cut).generation(), using="default")
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=moment)


def _fail(account: Account, now: datetime) -> RequestFailure:
    """A flood of requests without credit the day before, and a provider that failed just now; the latter."""
    key = keys.find(account, "production")
    assert key is not None
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
    return RequestFailure.objects.latest("created_at")


def _about(draw: random.Random, tokens: int) -> int:
    return round(tokens * draw.lognormvariate(0, 0.5))


def _second_account(start: datetime) -> None:
    with _at(start):
        open_account("Northwind Research", currency="USD", credit=Decimal(25), owner_email=OWNER)


def _people(account: Account) -> None:
    owner = User.objects.get(email=OWNER)
    owner.set_password(PASSWORD)
    owner.save()
    member = User.objects.create_user(MEMBER, PASSWORD)
    Membership.objects.create(user=member, account=account)
    User.objects.create_user(NEWCOMER, PASSWORD)
    User.objects.create_superuser(STAFF, PASSWORD)
    invitations.invite(account.pk, "sasha@northwind.example", Membership.Role.MEMBER, by=owner)
