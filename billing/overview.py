"""What the overview page reads: an account's balance, keys, newest requests and last 30 days."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from django.db.models import QuerySet

from accounts.models import Account, ApiKey
from catalogue.models import Modality, State
from catalogue.routes import Offer
from catalogue.snapshot import current
from gateway.errors import ServiceUnavailable

from .models import Generation, Wallet
from .usage_statistics import Days, Scope, Totals, totals

NEWEST_REQUESTS = 20
WINDOW_DAYS = 30  # UTC's, today's included
LOW_BALANCE_DAYS = 7  # a week is time enough for a bank transfer to arrive
PLACEHOLDER_MODEL = "provider/creator/model"


class Standing(StrEnum):
    """How the balance stands. EMPTY is what makes the API answer 402."""

    GOOD = "good"
    LOW = "low"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key that is not deleted. Whether it has expired is decided by the clock, as at each request."""

    key: ApiKey
    has_expired: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the page."""

    account: Account
    balance: Decimal
    keys: list[KeyLine]
    requests: list[Generation]
    sums: Totals

    @property
    def days_left(self) -> int | None:
        """Whole days that the balance lasts at the window's pace; None where nothing was spent."""
        if not self.sums.cost:
            return None
        return max(0, int(self.balance * WINDOW_DAYS / self.sums.cost))

    @property
    def standing(self) -> Standing:
        """Whether credit is needed: now, soon or not."""
        if self.balance <= 0:
            return Standing.EMPTY
        soon = self.days_left is not None and self.days_left < LOW_BALANCE_DAYS
        return Standing.LOW if soon else Standing.GOOD

    @property
    def example_model(self) -> str:
        """A model for the example request: the one that this account chatted with last, else any that would answer."""
        chats = (record for record in self.requests if record.endpoint == Generation.Endpoint.CHAT)
        newest = next(chats, None)
        return _some_chat_model() if newest is None else f"{newest.provider}/{newest.model}"


def read(account: Account, now: datetime) -> Overview:
    """Five SELECTs, each by an index."""
    return Overview(
        account=account,
        balance=Wallet.objects.get(pk=account.pk).balance,
        keys=_keys(account.pk, now),
        requests=list(_records(account.pk).order_by("-created_at", "-id")[:NEWEST_REQUESTS]),
        sums=totals(Scope(account.pk), Days.until(now, WINDOW_DAYS)),
    )


def _some_chat_model() -> str:
    """The first chat model that can be called now, as a 3-part id; a placeholder where there is none."""
    try:
        offers = current().offers.values()
    except ServiceUnavailable:
        return PLACEHOLDER_MODEL
    return next((offer.id for offer in offers if _answers_chat(offer)), PLACEHOLDER_MODEL)


def _answers_chat(offer: Offer) -> bool:
    route = offer.routes[offer.default_locode]
    callable_now = offer.state == State.SERVED and route.is_served and offer.upstream.configured
    return callable_now and offer.modality == Modality.CHAT and route.price is not None


def _records(account_id: UUID) -> QuerySet[Generation]:
    return Generation.objects.filter(account_id=account_id)


def _keys(account_id: UUID, now: datetime) -> list[KeyLine]:
    """Newest first; a deleted key is not listed."""
    live = ApiKey.objects.filter(account_id=account_id, deleted_at=None)
    return [KeyLine(key, key.expires_at is not None and key.expires_at <= now) for key in live]
