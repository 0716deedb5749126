"""Answers the seven alias endpoints (docs/api.md#aliases)."""

from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.keys import caller_of_request
from accounts.models import Account
from billing.usage.replica import from_replica
from catalogue.routing import snapshot
from gateway.edge.control_view import ControlView
from gateway.errors import InvalidAliasTarget, InvalidRequest

from . import changes, stats, targets
from .models import Alias, AliasEvent
from .serializers import AliasEventSerializer, AliasSerializer, HistoryQuery, StatsQuery, alias_name


class Aliases(ControlView):
    """Lists and creates aliases."""

    doing = "listing or creating aliases"

    def get(self, request: Request) -> Response:
        account = Account.objects.get(pk=caller_of_request(request).account_id)
        found = AliasSerializer(Alias.objects.filter(account=account), many=True).data
        return Response({"aliases": found, "quota": {"used": len(found), "max": changes.limit_of(account)}})

    def post(self, request: Request) -> Response:
        body = self.json_body(request)
        name = alias_name(body.get("name"))
        target = targets.from_body(body)
        if target is None:
            raise InvalidAliasTarget(targets.SHAPES_MESSAGE)
        _require_routable(request, target)
        caller = caller_of_request(request)
        fallbacks = _fallbacks(request, body, of=name) or ()
        alias = changes.create(caller.account_id, name, target, fallbacks=fallbacks, by=caller.key_id)
        return Response(AliasSerializer(alias).data, status=201)


class NamedAlias(ControlView):
    """Shows, changes and deletes an alias, by its name without `alias/`."""

    doing = "reading or changing the alias"

    def get(self, request: Request, name: str) -> Response:
        return Response(AliasSerializer(changes.find(caller_of_request(request).account_id, name)).data)

    def patch(self, request: Request, name: str) -> Response:
        account_id = caller_of_request(request).account_id
        changes.find(account_id, name)
        body = self.json_body(request)
        new_name = None if body.get("name") is None else alias_name(body["name"])
        target = targets.from_body(body)
        fallbacks = _fallbacks(request, body, of=name)
        if new_name is None and target is None and fallbacks is None:
            raise InvalidRequest("Send a new `name`, a target, or `fallbacks`.")
        if target is not None:
            _require_routable(request, target)
        by = caller_of_request(request).key_id
        alias = changes.change(account_id, name, name=new_name, target=target, fallbacks=fallbacks, by=by)
        return Response(AliasSerializer(alias).data)

    def delete(self, request: Request, name: str) -> Response:
        changes.delete(caller_of_request(request).account_id, name, by=caller_of_request(request).key_id)
        return Response(status=204)


def _require_routable(request: Request, target: targets.Target) -> None:
    targets.require_routable(target, snapshot.current(), timezone.now().date(), caller_of_request(request).currency)


def _fallbacks(request: Request, body: dict[str, Any], *, of: str) -> list[str] | None:
    """Returns the checked `fallbacks` of a body, or None if it has none. Raises InvalidRequest."""
    if body.get("fallbacks") is None:
        return None
    caller, today = caller_of_request(request), timezone.now().date()
    return targets.checked_fallbacks(
        body["fallbacks"], snapshot.current(), today, caller.account_id, caller.currency, of=of.lower()
    )


class AliasStats(ControlView):
    """Shows the use of an alias under all its names."""

    doing = "adding up the alias's use"

    @from_replica
    def get(self, request: Request, name: str) -> Response:
        alias = changes.find(caller_of_request(request).account_id, name)
        query = StatsQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        days = query.validated_data["days"]
        found = stats.of_alias(alias, days=days, today=timezone.now().date(), catalogue=snapshot.current())
        return Response({"alias": AliasSerializer(alias).data, "days": days, **found})


class AliasHistory(ControlView):
    """Lists the changes of an alias, newest first."""

    doing = "reading the alias's history"

    def get(self, request: Request, name: str) -> Response:
        alias = changes.find(caller_of_request(request).account_id, name)
        query = HistoryQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        events = AliasEvent.objects.filter(alias_id=alias.pk)[: query.validated_data["limit"]]
        return Response({"alias": AliasSerializer(alias).data, "events": AliasEventSerializer(events, many=True).data})
