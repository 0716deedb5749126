"""Writes the audit log: what was done to an account, by whom, and from where (docs/management.md#audit-log).

An event is written in the transaction of the action, so that there is none without the other. Each way into the gateway
says once who acts (`acting_as`): the authentication of keys, the middleware of pages, and the commands.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.forms import ModelForm
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from gateway.edge.address_limit import client_address
from gateway.management.base import running_command
from gateway.observing.request_events import event_of

from .actions import WEBHOOKS, Action
from .models import Account, ApiKey, AuditEvent, Invitation, User
from .webhooks import events

Kind = AuditEvent.ActorKind
TOLD = frozenset({"expires_at", "former_works_until", "kind", "role"})  # of what an action sets
PERSONS = frozenset({Kind.MEMBER, Kind.STAFF})


@dataclass(frozen=True, slots=True)
class Actor:
    """Names who acts, and the network address and the request that they act with. A person's name is not stored."""

    kind: Kind = Kind.SYSTEM
    id: str = ""
    name: str = ""
    address: str | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """Names what an action is done to: `kind` is the first part of a word such as `key` or `member`."""

    kind: str
    id: str
    name: str = ""

    @classmethod
    def of_account(cls, account: Account) -> "Subject":
        return cls("account", str(account.pk), account.name)

    @classmethod
    def of_key(cls, key: ApiKey) -> "Subject":
        return cls("key", str(key.pk), key.name)

    @classmethod
    def of_member(cls, person_id: int) -> "Subject":
        return cls("member", str(person_id))

    @classmethod
    def of_invitation(cls, invitation: Invitation) -> "Subject":
        return cls("invitation", str(invitation.pk))


_find_actor: ContextVar[Callable[[], Actor] | None] = ContextVar("find_actor", default=None)


def actor() -> Actor:
    """Returns who acts now. Without a request it is the running command, or the gateway itself."""
    find = _find_actor.get()
    if find is not None:
        return find()
    command = running_command.get()
    return Actor(name=f"manage.py {command}" if command else "")


def set_actor(acting: Actor) -> None:
    """Notes who acts until the end of this request."""
    _find_actor.set(lambda: acting)


def forget_actor(**_signal: object) -> None:
    """Forgets who acted, at the end of a request (a signal's receiver)."""
    _find_actor.set(None)


@contextmanager
def acting_as(acting: Actor) -> Iterator[None]:
    """Notes who acts within the block."""
    token = _find_actor.set(lambda: acting)
    try:
        yield
    finally:
        _find_actor.reset(token)


def note_account(*, instance: Account, created: bool, **_signal: Any) -> None:
    """Writes the audit event of a new account, however it was opened (a signal's receiver)."""
    if created:
        record(instance.pk, Action.ACCOUNT_CREATED, Subject.of_account(instance), new={"currency": instance.currency})


class ActorMiddleware:
    """Notes that the signed-in person of a page acts. The session is read only if an event is written."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        token = _find_actor.set(lambda: of_page(request))
        try:
            return self.get_response(request)
        finally:
            _find_actor.reset(token)


def of_member(person: User) -> Actor:
    """Returns a person as the actor of the present request, in which they may not be signed in."""
    return replace(actor(), kind=Kind.MEMBER, id=str(person.pk), name="")


def of_page(request: HttpRequest) -> Actor:
    """Returns the person of a page as a member, and in the admin as staff."""
    person, address, request_id = request.user, client_address(request.META), event_of(request.META).request_id
    if not isinstance(person, User):
        return Actor(address=address, request_id=request_id)
    kind = Kind.STAFF if request.path_info.startswith("/admin/") else Kind.MEMBER
    return Actor(kind, str(person.pk), "", address, request_id)


def record(account_id: UUID, action: Action, subject: Subject, *, old: Any = None, new: Any = None) -> AuditEvent:
    """Writes an event, within the caller's transaction, and sends it to the account's webhooks if they may take it.

    `old` and `new` are JSON without secrets and addresses.
    """
    acting = actor()
    if action in WEBHOOKS:
        events.enqueue(account_id, action, {f"{subject.kind}_id": subject.id, **_told(action, old, new)})
    return AuditEvent.objects.create(
        account_id=account_id,
        created_at=timezone.now(),
        action=action,
        actor_kind=acting.kind,
        actor_id=acting.id,
        actor_name=acting.name,
        object_kind=subject.kind,
        object_id=subject.id,
        object_name=subject.name,
        old=old,
        new=new,
        address=acting.address,
        request_id=acting.request_id,
    )


def _told(action: Action, old: Any, new: Any) -> dict[str, Any]:
    """Returns what an event to webhooks contains in addition to ids: values, but no names."""
    if action == Action.ALIAS_REPOINTED:
        return {"from": old["target"], "to": new["target"]}
    return {name: value for name, value in (new or {}).items() if name in TOLD}


def record_form(account_id: UUID, action: Action, subject: Subject, form: ModelForm[Any]) -> None:
    """Writes an event of what a form of the admin has changed, if it has changed anything."""
    if form.changed_data:
        old = {name: _as_json(form.initial.get(name)) for name in form.changed_data}
        new = {name: _as_json(form.cleaned_data.get(name)) for name in form.changed_data}
        record(account_id, action, subject, old=old, new=new)


def _as_json(value: Any) -> Any:
    return value if isinstance(value, str | int | bool | None) else str(value)


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """Holds an event with the addresses of the people in it, as it is shown to owners and staff."""

    event: AuditEvent
    actor_name: str
    object_name: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.event, name)


def shown(events: Iterable[AuditEvent]) -> list[ShownEvent]:
    """Looks up the addresses of people and invitations. Those of forgotten people are empty."""
    events = list(events)
    people = {e.actor_id for e in events if e.actor_kind in PERSONS} | _ids(events, "member")
    addresses = dict(User.objects.filter(pk__in=filter(None, people)).values_list("pk", "email"))
    invited = dict(Invitation.objects.filter(pk__in=_ids(events, "invitation")).values_list("pk", "email"))
    emails = {"member": _by_text(addresses), "invitation": _by_text(invited)}
    return [
        ShownEvent(
            event,
            emails["member"].get(event.actor_id, "") if event.actor_kind in PERSONS else event.actor_name,
            emails[event.object_kind].get(event.object_id, "") if event.object_kind in emails else event.object_name,
        )
        for event in events
    ]


def _ids(events: Iterable[AuditEvent], kind: str) -> set[str]:
    return {event.object_id for event in events if event.object_kind == kind}


def _by_text(emails: Mapping[Any, str]) -> dict[str, str]:
    return {str(key): email for key, email in emails.items()}
