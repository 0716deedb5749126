"""Serves `GET /v1/generations`, `/v1/generation/{id}` and `/v1/metrics/{id}` from the records."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core import signing
from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.keys import caller_of_request
from accounts.models import KeyKind
from gateway.edge.control_view import ControlView
from gateway.edge.strict_fields import TextField
from gateway.edge.tables import LimitField, MomentField
from gateway.errors import InvalidRequest, NotFound
from gateway.ids import parse_generation_id

from .models import Generation
from .usage.keyset import Page, Position, older_than
from .usage.replica import from_replica
from .usage.representations import metrics_of, record_of, stats_of


@dataclass(frozen=True, slots=True)
class Listing:
    """Selects the records of a key, or of an account, within a period, whose bounds are included."""

    account_id: UUID
    key_id: UUID | None  # None: all keys of the account, which a management key sees
    since: datetime | None = None
    until: datetime | None = None

    @property
    def salt(self) -> str:
        """Returns a salt for signing cursors, so that a cursor of another key does not verify."""
        return f"billing.generations/{(self.key_id or self.account_id).hex}"

    def cursor(self, record: Generation) -> str:
        """Signs the record's position and the bounds of the listing as a cursor."""
        bounds = (moment and moment.isoformat() for moment in (self.since, self.until))
        return signing.dumps([record.created_at.isoformat(), record.pk.hex, *bounds], salt=self.salt)


def page_of(listing: Listing, *, limit: int, before: str | None = None) -> Page[Generation, str]:
    """Reads a page with one SELECT of `limit` + 1 rows by an index, and one more SELECT for their terms.

    `before` is the `next_cursor` of the previous page; this page has the records that are older than those. With a
    cursor and without bounds, the listing continues within the bounds of its first page. Raises InvalidRequest for a
    cursor of another key or of other bounds.
    """
    position = None
    if before is not None:
        listing, position = _continued(listing, before)
    found = list(newest_first(listing, position)[: limit + 1])
    older = listing.cursor(found[limit - 1]) if len(found) > limit else None
    return Page(found[:limit], older=older, newer=None)


def newest_first(listing: Listing, position: Position | None) -> QuerySet[Generation]:
    """Selects a listing's records older than a position, newest first, by reading an index backwards."""
    of_caller = {"account_id": listing.account_id} if listing.key_id is None else {"key_id": listing.key_id}
    records = Generation.objects.filter(**of_caller).prefetch_related("terms").order_by("-created_at", "-id")
    if listing.since is not None:
        records = records.filter(created_at__gte=listing.since)
    if position is not None:  # the position is before `until`, which need not be checked again
        return older_than(records, position)
    return records if listing.until is None else records.filter(created_at__lte=listing.until)


def _continued(listing: Listing, cursor: str) -> tuple[Listing, Position]:
    """Returns the listing that a cursor continues, and its position. Raises InvalidRequest."""
    refusal = InvalidRequest.of_field("after", "is not a cursor of this listing with this key and these bounds.")
    try:
        created_at, identifier, *bounds = signing.loads(cursor, salt=listing.salt)
    except signing.BadSignature:
        raise refusal from None
    since, until = (bound and datetime.fromisoformat(bound) for bound in bounds)
    first_listing = replace(listing, since=since, until=until)
    if listing not in (first_listing, Listing(listing.account_id, listing.key_id)):
        raise refusal
    return first_listing, (datetime.fromisoformat(created_at), UUID(hex=identifier))


class GenerationsQuery(serializers.Serializer[Any]):
    """Reads the query of the listing. `since` and `until` are inclusive.

    `after` is the `next_cursor` of the previous page. The list goes on after that page, with older records, for which
    the code says `before`, as in billing/usage/keyset.py.
    """

    since = MomentField(required=False, round_up=True)
    until = MomentField(required=False)
    limit = LimitField(maximum=1000, default=100)
    after = TextField(required=False)


class Generations(ControlView):
    """Lists the records of the calling key, or of the whole account if it is a management key."""

    doing = "listing the generations"

    @from_replica
    def get(self, request: Request) -> Response:
        """Answers `{object: list, data: [GenerationRecord], next_cursor?}`, newest first."""
        # A plain dict: in a QueryDict, DRF would treat an empty `since=` as absent, but it has to be refused.
        fields = GenerationsQuery(data=request.query_params.dict())
        fields.is_valid(raise_exception=True)
        query = fields.validated_data
        caller = caller_of_request(request)
        key_id = None if caller.kind == KeyKind.MANAGEMENT else caller.key_id
        listing = Listing(caller.account_id, key_id, query.get("since"), query.get("until"))
        page = page_of(listing, limit=query["limit"], before=query.get("after"))
        body = {"object": "list", "data": [record_of(record) for record in page.rows]}
        if page.older is not None:
            body["next_cursor"] = page.older
        return Response(body)


class GenerationDetail(ControlView):
    """Shows one record of the account in full."""

    doing = "reading the generation"

    def get(self, request: Request, generation_id: str) -> Response:
        """Answers GenerationStats."""
        return Response(stats_of(_wanted(request, generation_id)))


class Metrics(ControlView):
    """Shows the tokens and the footprint of one record of the account."""

    doing = "reading the generation's metrics"

    def get(self, request: Request, generation_id: str) -> Response:
        """Answers a GenerationMetricsResponse."""
        return Response(metrics_of(_wanted(request, generation_id)))


def _wanted(request: Request, generation_id: str) -> Generation:
    return generation_of_account(caller_of_request(request).account_id, generation_id)


def generation_of_account(account_id: UUID, public_id: str) -> Generation:
    """Returns a record of the account. Raises NotFound alike for another account's, an unknown and a malformed id."""
    identifier = parse_generation_id(public_id)
    records = Generation.objects.filter(account_id=account_id).select_related("terms")
    found = None if identifier is None else records.filter(pk=identifier).first()
    if found is None:
        raise NotFound("This account has no generation of that id.")
    return found
