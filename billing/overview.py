"""What the overview page reads: an account's balance, keys, newest requests and last 30 days."""

from dataclasses import dataclass
from datetime import date, datetime

from accounts import key_list
from accounts.key_list import KeyLine
from accounts.models import Account
from catalogue import quota
from catalogue.listing import View, served_now
from catalogue.models import Modality
from catalogue.routes import Offer
from catalogue.snapshot import current
from gateway.errors import ServiceUnavailable

from .balance_status import Funds, funds_of
from .models import Generation

NEWEST_KEYS = 5
NEWEST_REQUESTS = 20
PLACEHOLDER_MODEL = "provider/creator/model"


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the page."""

    account: Account
    today: date
    funds: Funds
    keys: list[KeyLine]
    requests: list[Generation]

    @property
    def example_model(self) -> str:
        """A model for the example request: the one that this account chatted with last, else any that would answer."""
        chats = (record for record in self.requests if record.endpoint == Generation.Endpoint.CHAT)
        newest = next(chats, None)
        return _some_chat_model(self.today) if newest is None else f"{newest.provider}/{newest.model}"


def read(account: Account, now: datetime) -> Overview:
    """Five SELECTs, each by an index."""
    records = Generation.objects.filter(account_id=account.pk).select_related("key").order_by("-created_at", "-id")
    return Overview(
        account=account,
        today=quota.day_of(now),
        funds=funds_of(account.pk, now),
        keys=key_list.newest(account, now, rows=NEWEST_KEYS),
        requests=list(records[:NEWEST_REQUESTS]),
    )


def _some_chat_model(today: date) -> str:
    """The first chat model that can be called now, as a 3-part id; a placeholder where there is none."""
    try:
        snapshot = current()
    except ServiceUnavailable:
        return PLACEHOLDER_MODEL
    view = View(today, quota.held(snapshot.with_quota, today))
    return next((offer.id for offer in snapshot.offers.values() if _answers_chat(offer, view)), PLACEHOLDER_MODEL)


def _answers_chat(offer: Offer, view: View) -> bool:
    default = (route for route in served_now(offer, view) if route.locode == offer.default_locode)
    return offer.modality == Modality.CHAT and any(route.price is not None for route in default)
