"""`GET /v1/generations`, `/v1/generation/{id}` and `/v1/metrics/{id}`: what was served, from its records."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core import signing
from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.keys import caller_behind
from gateway.edge.control_view import ControlView
from gateway.edge.serializers import TextField
from gateway.edge.tables import LimitField, MomentField
from gateway.errors import InvalidRequest, NotFound
from gateway.ids import parse_generation_id

from .models import Generation
from .usage import keyset
from .usage.keyset import Page, Position, older_than
from .usage.replica import from_replica
from .usage.representations import metrics_of, record_of, stats_of


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


def page_of(listing: Listing, *, limit: int, after: str | None = None) -> Page[Generation, str]:
    """One SELECT that reads `limit` + 1 rows of an index, and one of their terms.

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
    records = Generation.objects.filter(key_id=listing.key_id).prefetch_related("terms").order_by("-created_at", "-id")
    if listing.since is not None:
        records = records.filter(created_at__gte=listing.since)
    if after is not None:  # it lies within `until`
        return older_than(records, after)
    return records if listing.until is None else records.filter(created_at__lte=listing.until)


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


class GenerationsQuery(serializers.Serializer[Any]):
    """`since` and `until` are inclusive; `after` is the `next_cursor` of the page before."""

    since = MomentField(required=False, round_up=True)
    until = MomentField(required=False)
    limit = LimitField(maximum=1000, default=100)
    after = TextField(required=False)


class Generations(ControlView):
    """The calling key's records."""

    doing = "listing the generations"

    @from_replica
    def get(self, request: Request) -> Response:
        """`{object: list, data: [GenerationRecord], next_cursor?}`, newest first."""
        # As a plain dict: DRF takes an empty field of a form for an absent one, and `since=` is a mistake.
        query = GenerationsQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        asked = query.validated_data
        listing = Listing(caller_behind(request).key_id, asked.get("since"), asked.get("until"))
        page = page_of(listing, limit=asked["limit"], after=asked.get("after"))
        body = {"object": "list", "data": [record_of(record) for record in page.rows]}
        if page.older is not None:
            body["next_cursor"] = page.older
        return Response(body)


class Statistics(ControlView):
    """One record of the account, in full."""

    doing = "reading the generation"

    def get(self, request: Request, generation_id: str) -> Response:
        """GenerationStats."""
        return Response(stats_of(_wanted(request, generation_id)))


class Metrics(ControlView):
    """The tokens and the footprint of one record of the account."""

    doing = "reading the generation's metrics"

    def get(self, request: Request, generation_id: str) -> Response:
        """GenerationMetricsResponse."""
        return Response(metrics_of(_wanted(request, generation_id)))


def _wanted(request: Request, generation_id: str) -> Generation:
    return of_account(caller_behind(request).account_id, generation_id)


def of_account(account_id: UUID, public_id: str) -> Generation:
    """Any record of the account. Raises NotFound for everything else: foreign, unknown and malformed look alike."""
    identifier = parse_generation_id(public_id)
    records = Generation.objects.filter(account_id=account_id).select_related("terms")
    found = None if identifier is None else records.filter(pk=identifier).first()
    if found is None:
        raise NotFound("This account has no generation of that id.")
    return found
