"""Answers lists page by page, with signed cursors (docs/api.md#records)."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.core import signing
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from ..errors import InvalidRequest
from .strict_fields import TextField
from .tables import LimitField

Row = TypeVar("Row")


class ListQuery(serializers.Serializer[Any]):
    """Reads the query of a list. `after` is the `next_cursor` of the page before."""

    limit = LimitField(maximum=1000, default=100)
    after = TextField(required=False)


def query_of(request: Request, form: type[serializers.Serializer[Any]] = ListQuery) -> dict[str, Any]:
    """Returns the checked query of a list. Raises DRF's ValidationError."""
    # A plain dict: in a QueryDict, DRF would treat an empty `since=` as absent, but it has to be refused.
    fields = form(data=request.query_params.dict())
    fields.is_valid(raise_exception=True)
    found: dict[str, Any] = fields.validated_data
    return found


def position_of(query: dict[str, Any], salt: str) -> Any:
    """Returns the position after which a page begins, or None for the first page.

    `salt` names the list and whose it is. A cursor of another list, or of other filters, raises InvalidRequest.
    """
    if "after" not in query:
        return None
    try:
        return signing.loads(query["after"], salt=_with_filters(salt, query))
    except signing.BadSignature:
        raise InvalidRequest.of_field("after", "is not a cursor of this list.") from None


def page(
    rows: Sequence[Row],
    query: dict[str, Any],
    salt: str,
    *,
    position: Callable[[Row], Any],
    shown: Callable[[Sequence[Row]], list[Any]],
) -> Response:
    """Returns a page of `rows`. The caller reads one row beyond the limit, if there is one: another page follows."""
    limit = query["limit"]
    body: dict[str, Any] = {"object": "list", "data": shown(rows[:limit])}
    if len(rows) > limit:
        body["next_cursor"] = signing.dumps(position(rows[limit - 1]), salt=_with_filters(salt, query))
    return Response(body)


def _with_filters(salt: str, query: dict[str, Any]) -> str:
    filters = [f"{name}={value}" for name, value in sorted(query.items()) if name not in ("limit", "after")]
    return "&".join([salt, *filters])
