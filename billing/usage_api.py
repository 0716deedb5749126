"""Serves `GET /v1/ledger` and `GET /v1/usage` for an account's own systems (docs/management.md)."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.keys import ManagementAuthentication, caller_of_request
from gateway.edge import listing
from gateway.edge.control_view import ControlView
from gateway.edge.listing import ListQuery
from gateway.edge.rfc3339 import to_text
from gateway.edge.strict_fields import ChoiceField
from gateway.edge.tables import MomentField

from .models import LedgerEntry
from .operator_api import shown_entry
from .usage import api_usage
from .usage.api_usage import GROUPS, UsageQuery
from .usage.replica import from_replica

Json = dict[str, Any]
LATEST = datetime.max.replace(tzinfo=UTC)  # no entry is later
BUCKETS = ("hour", "day", "month")


class LedgerQuery(ListQuery):
    """Reads the query of the ledger. `since` and `until` are inclusive."""

    since = MomentField(required=False, round_up=True)
    until = MomentField(required=False)
    kind = ChoiceField(LedgerEntry.Kind.values, required=False)


class Ledger(ControlView):
    """Lists the account's ledger entries, newest first."""

    doing = "listing the ledger"
    authentication_classes = (ManagementAuthentication,)

    @from_replica
    def get(self, request: Request) -> Response:
        account_id, query = caller_of_request(request).account_id, listing.query_of(request, LedgerQuery)
        salt = f"billing.ledger/{account_id.hex}"
        entries = LedgerEntry.objects.filter(account_id=account_id).order_by("-seq")
        if (seq := listing.position_of(query, salt)) is not None:
            entries = entries.filter(seq__lt=seq)
        if "kind" in query:
            # Credit has an index of its own: its entries are the few that have a reference.
            is_usage = query["kind"] == LedgerEntry.Kind.USAGE
            entries = entries.filter(kind=query["kind"], reference__isnull=is_usage)
        # Entries of an account are numbered in the order of their times, so a bound of time is one of numbers.
        if "since" in query:
            entries = entries.filter(seq__gt=_entries_before(account_id, query["since"]))
        if "until" in query and query["until"] < LATEST:
            entries = entries.filter(seq__lte=_entries_before(account_id, query["until"] + timedelta(microseconds=1)))
        found = list(entries[: query["limit"] + 1])
        shown = [shown_entry(entry) for entry in found]
        return listing.page(found, query, salt, position=lambda entry: entry.seq, shown=lambda rows: shown[: len(rows)])


class UsageForm(serializers.Serializer[Any]):
    """Reads the query of the usage. `since` is inclusive, `until` is not."""

    since = MomentField(required=False)
    until = MomentField(required=False)
    bucket = ChoiceField(BUCKETS, default="day")
    group_by = serializers.CharField(required=False)

    def validate_group_by(self, value: str) -> tuple[str, ...]:
        names = tuple(value.split(","))
        if not set(names) <= GROUPS.keys() or len({*names}) < len(names):
            raise serializers.ValidationError(f"must be some of {', '.join(GROUPS)}, once each, with commas between.")
        return names


class Usage(ControlView):
    """Adds up the account's usage by hours, days or months, in total or by groups."""

    doing = "adding up the usage"
    authentication_classes = (ManagementAuthentication,)

    @from_replica
    def get(self, request: Request) -> Response:
        form = listing.query_of(request, UsageForm)
        begin, end = api_usage.in_whole_buckets(form.get("since"), form.get("until"), form["bucket"])
        account_id = caller_of_request(request).account_id
        query = UsageQuery(account_id, begin, end, form["bucket"], form.get("group_by", ()))
        rows = api_usage.rows_of(query)
        body = {
            "object": "list",
            "bucket": query.bucket,
            "since": to_text(begin),
            "until": to_text(end),
            "currency": caller_of_request(request).currency,
            "data": api_usage.shown(query, rows),
        }
        return Response(body)


def _entries_before(account_id: UUID, moment: Any) -> int:
    """Returns how many entries the account had before a moment, by looking at a few of them."""
    entries = LedgerEntry.objects.filter(account_id=account_id)
    low, high = 0, entries.order_by("-seq").values_list("seq", flat=True).first() or 0
    while low < high:
        middle = (low + high + 1) // 2
        if entries.values_list("created_at", flat=True).get(seq=middle) < moment:
            low = middle
        else:
            high = middle - 1
    return low
