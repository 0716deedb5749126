"""Serves `/v1/members`, `/v1/invitations` and `/v1/audit` for an account's own systems (docs/management.md)."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.edge import listing
from gateway.edge.control_view import ControlView
from gateway.edge.listing import ListQuery
from gateway.edge.rfc3339 import to_text
from gateway.edge.strict_fields import ChoiceField
from gateway.edge.tables import MomentField, Table
from gateway.errors import InvalidRequest, LastOwnerStays, NotFound
from gateway.ids import first_uuid7

from . import audit, invitations, members
from .keys import ManagementAuthentication, caller_of_request
from .models import ApiKey, AuditEvent, Invitation, Membership

Json = dict[str, Any]


class AddressField(serializers.EmailField):
    """Accepts an e-mail address, in lower case."""

    default_error_messages = {"type": "must be a string."}

    def __init__(self) -> None:
        super().__init__(max_length=254)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("type")
        return str(super().to_internal_value(data)).lower()


class NewInvitation(Table):
    """Reads the body of an invitation."""

    email = AddressField()
    role = ChoiceField(Membership.Role.values, default=Membership.Role.MEMBER.value)


class Members(ControlView):
    """Lists the account's members, owners first."""

    doing = "listing the members"
    authentication_classes = (ManagementAuthentication,)

    def get(self, request: Request) -> Response:
        found = Membership.objects.filter(account_id=caller_of_request(request).account_id)
        rows = found.select_related("user").order_by("-role", "user__email")
        return Response({"object": "list", "data": [_member(membership) for membership in rows]})


class OneMember(ControlView):
    """Removes a member."""

    doing = "removing the member"
    authentication_classes = (ManagementAuthentication,)

    def delete(self, request: Request, person_id: str) -> Response:
        caller = caller_of_request(request)
        found = Membership.objects.filter(account_id=caller.account_id)
        is_id = person_id.isascii() and person_id.isdigit() and len(person_id) < 19  # digits of a 64-bit number
        membership = found.filter(user_id=int(person_id)).first() if is_id else None
        if membership is None:
            raise NotFound("This account has no such member.")
        try:
            members.remove(membership, by=ApiKey.objects.get(pk=caller.key_id))
        except members.NotAMember:
            raise NotFound("This account has no such member.") from None
        except members.LastOwner:
            raise LastOwnerStays from None
        return Response(status=204)


class Invitations(ControlView):
    """Invites a person by mail."""

    doing = "sending the invitation"
    authentication_classes = (ManagementAuthentication,)

    def post(self, request: Request) -> Response:
        form = NewInvitation(data=self.json_body(request))
        form.is_valid(raise_exception=True)
        caller, fields = caller_of_request(request), form.validated_data
        try:
            key = ApiKey.objects.get(pk=caller.key_id)
            sent = invitations.send(caller.account_id, fields["email"], fields["role"], by=key)
        except invitations.InvitationRefused as error:
            raise InvalidRequest(str(error), param="email") from None
        return Response(_invitation(sent), status=201)


class AuditQuery(ListQuery):
    """Reads the query of the audit log. `since` and `until` are inclusive; `action` may end with `*`."""

    since = MomentField(required=False, round_up=True)
    until = MomentField(required=False)
    action = serializers.CharField(required=False)  # refuses NUL, which PostgreSQL does not take
    actor = serializers.CharField(required=False)


class Audit(ControlView):
    """Lists what was done to the account, newest first."""

    doing = "listing the audit log"
    authentication_classes = (ManagementAuthentication,)

    def get(self, request: Request) -> Response:
        account_id, query = caller_of_request(request).account_id, listing.query_of(request, AuditQuery)
        salt = f"accounts.audit/{account_id.hex}"
        events = events_of(account_id, query)
        if (position := listing.position_of(query, salt)) is not None:
            events = events.filter(pk__lt=UUID(hex=position))
        found = list(events[: query["limit"] + 1])
        return listing.page(found, query, salt, position=lambda event: event.pk.hex, shown=shown_events)


def events_of(account_id: UUID, chosen: Json) -> "QuerySet[AuditEvent]":
    """Selects an account's events, newest first. `chosen` has the fields of AuditQuery."""
    events = AuditEvent.objects.filter(account_id=account_id).order_by("-pk")
    if "since" in chosen:
        events = events.filter(pk__gte=first_uuid7(chosen["since"]), created_at__gte=chosen["since"])
    if "until" in chosen:
        events = events.filter(created_at__lte=chosen["until"])
    if "actor" in chosen:
        events = events.filter(actor_id=chosen["actor"])
    action = chosen.get("action", "*")
    if action.endswith("*"):
        return events.filter(action__startswith=action[:-1]) if action != "*" else events
    return events.filter(action=action)


def shown_events(events: Sequence[AuditEvent]) -> list[Json]:
    """Returns events as the API shows them."""
    return [
        {
            "id": str(event.pk),
            "at": to_text(event.created_at),
            "actor": {"kind": event.actor_kind, "id": event.actor_id or None, "name": each.actor_name or None},
            "action": event.action,
            "object": {"kind": event.object_kind, "id": event.object_id, "name": each.object_name or None},
            "from": event.old,
            "to": event.new,
            "address": event.address,
            "request_id": event.request_id or None,
        }
        for each in audit.shown(events)
        for event in (each.event,)
    ]


def _member(membership: Membership) -> Json:
    return {
        "object": "member",
        "id": str(membership.user_id),
        "email": membership.user.email,
        "role": membership.role,
        "created_at": to_text(membership.created_at),
    }


def _invitation(invitation: Invitation) -> Json:
    return {
        "object": "invitation",
        "id": str(invitation.pk),
        "email": invitation.email,
        "role": invitation.role,
        "created_at": to_text(invitation.created_at),
        "expires_at": to_text(invitation.expires_at),
    }
