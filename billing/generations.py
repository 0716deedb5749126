"""Reads of generation records: a key's, page by page, and any one of an account's."""

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.core import signing
from django.db.models import QuerySet

from gateway.errors import InvalidRequest, NotFound
from gateway.ids import parse_generation_id

from .models import Generation

Position = tuple[datetime, UUID]  # of a record in a listing: created_at, and the id where two were created at once


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


@dataclass(frozen=True, slots=True)
class Page:
    """Records, newest first. `next_cursor` is None on the last page."""

    records: list[Generation]
    next_cursor: str | None


def page(listing: Listing, *, limit: int, after: str | None = None) -> Page:
    """One SELECT that reads `limit` + 1 rows of an index.

    With a cursor and no bounds the listing goes on within the bounds of its first page. Raises InvalidRequest for a
    cursor of another key or of other bounds.
    """
    position = None
    if after is not None:
        listing, position = _continued(listing, after)
    found = list(newest_first(listing, position)[: limit + 1])
    more = len(found) > limit
    return Page(found[:limit], listing.cursor(found[limit - 1]) if more else None)


def newest_first(listing: Listing, after: Position | None) -> QuerySet[Generation]:
    """The listing behind a position, in the order of the index `generation_by_key`, from which it is read backwards."""
    records = Generation.objects.filter(key_id=listing.key_id).order_by("-created_at", "-id")
    if listing.since is not None:
        records = records.filter(created_at__gte=listing.since)
    if after is not None:  # it lies within `until`
        return older_than(records, after)
    return records if listing.until is None else records.filter(created_at__lte=listing.until)


def older_than(records: QuerySet[Generation], position: Position) -> QuerySet[Generation]:
    """Reading begins at the position's time: all that is skipped are records of that very microsecond.

    (Both databases can compare (created_at, id) as a row, but Django spells that out for SQLite in a way that reads
    from the start.)
    """
    created_at, identifier = position
    return records.filter(created_at__lte=created_at).exclude(created_at=created_at, id__gte=identifier)


def newer_than(records: QuerySet[Generation], position: Position) -> QuerySet[Generation]:
    """The other direction of `older_than`."""
    created_at, identifier = position
    return records.filter(created_at__gte=created_at).exclude(created_at=created_at, id__lte=identifier)


def to_cursor(record: Generation, salt: str) -> str:
    """The record's position as a signed text."""
    return signing.dumps([record.created_at.isoformat(), record.pk.hex], salt=salt)


def from_cursor(cursor: str, salt: str) -> Position:
    """Raises BadSignature for what was not made by `to_cursor` with the same salt."""
    created_at, identifier = signing.loads(cursor, salt=salt)
    return datetime.fromisoformat(created_at), UUID(hex=identifier)


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
