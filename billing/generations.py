"""Reads of generation records: a key's, page by page, and any one of an account's."""

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.core import signing
from django.db.models import QuerySet

from gateway.errors import InvalidRequest, NotFound
from gateway.ids import parse_generation_id

from . import keyset
from .keyset import Page, Position, older_than
from .models import Generation


@dataclass(frozen=True, slots=True)
class Listing:
    """Whose records, and of what time: the first and the last moment that count."""

    key_id: UUID
    since: datetime | None = None
    until: datetime | None = None

    @property
    def salt(self) -> str:
        """Sets the cursors of each key apart: signed with this, one of another key does not verify."""
        return f"billing.generations/{self.key_id.hex}"

    def cursor(self, record: Generation) -> str:
        """The record's position, with the bounds of the listing."""
        bounds = (moment and moment.isoformat() for moment in (self.since, self.until))
        return signing.dumps([record.created_at.isoformat(), record.pk.hex, *bounds], salt=self.salt)


def page(listing: Listing, *, limit: int, after: str | None = None) -> Page[Generation, str]:
    """One SELECT that reads `limit` + 1 rows of an index.

    With a cursor and no bounds the listing goes on within the bounds of its first page. Raises InvalidRequest for a
    cursor of another key or of other bounds.
    """
    position = None
    if after is not None:
        listing, position = _continued(listing, after)
    return keyset.page(
        lambda _cursor, wanted, _upwards: list(newest_first(listing, position)[:wanted]), listing.cursor, limit
    )


def newest_first(listing: Listing, after: Position | None) -> QuerySet[Generation]:
    """The listing behind a position, in the order of the index `generation_by_key`, from which it is read backwards."""
    records = Generation.objects.filter(key_id=listing.key_id).order_by("-created_at", "-id")
    if listing.since is not None:
        records = records.filter(created_at__gte=listing.since)
    if after is not None:  # it lies within `until`
        return older_than(records, after)
    return records if listing.until is None else records.filter(created_at__lte=listing.until)


def of_account(account_id: UUID, public_id: str) -> Generation:
    """Any record of the account. Raises NotFound for everything else: foreign, unknown and malformed look alike."""
    identifier = parse_generation_id(public_id)
    found = None if identifier is None else Generation.objects.filter(pk=identifier, account_id=account_id).first()
    if found is None:
        raise NotFound("This account has no generation of that id.")
    return found


def _continued(listing: Listing, cursor: str) -> tuple[Listing, Position]:
    """The listing that a cursor goes on with, and where."""
    refusal = InvalidRequest.of_field("after", "is no cursor of this listing, with this key and these bounds.")
    try:
        created_at, identifier, *bounds = signing.loads(cursor, salt=listing.salt)
    except signing.BadSignature:
        raise refusal from None
    since, until = (bound and datetime.fromisoformat(bound) for bound in bounds)
    begun = replace(listing, since=since, until=until)
    if listing not in (begun, Listing(listing.key_id)):
        raise refusal
    return begun, (datetime.fromisoformat(created_at), UUID(hex=identifier))
