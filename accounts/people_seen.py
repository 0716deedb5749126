"""Notes in the background when each session was last used, for the page that lists a person's sessions."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from allauth.account.adapter import get_adapter
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from gateway.observing.write_behind import WriteBehind

from .models import User

SESSIONS_IN_A_STATEMENT = 100
LONGEST_AGENT = 200


@dataclass(frozen=True, slots=True)
class Use:
    """Describes the newest request of a session."""

    person_id: int
    at: datetime
    address: str
    agent: str


class PeopleSeenMiddleware:
    """Notes the use of a session by each page that a signed-in person requests. It makes no query."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        # A page that has not loaded the session, such as a document, is no use of it.
        person = getattr(request, "_cached_user", None)
        key = request.session.session_key if isinstance(person, User) else None
        if key is not None and isinstance(person, User):
            agent = request.headers.get("User-Agent", "")[:LONGEST_AGENT]
            _uses.note(key, Use(person.pk, timezone.now(), get_adapter().get_client_ip(request), agent))
        return response


def _write(uses: dict[str, Use]) -> None:
    # A session may have been signed out since then, and its person may be gone.
    alive = {*Session.objects.filter(pk__in=[*uses]).values_list("pk", flat=True)}
    people = {*User.objects.filter(pk__in={use.person_id for use in uses.values()}).values_list("pk", flat=True)}
    rows = [
        UserSession(
            session_key=key,
            user_id=use.person_id,
            created_at=use.at,
            last_seen_at=use.at,
            ip=use.address,
            user_agent=use.agent.replace("\0", ""),
        )
        for key, use in uses.items()
        if key in alive and use.person_id in people
    ]
    UserSession.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["session_key"],
        update_fields=["user", "last_seen_at", "ip", "user_agent"],
    )


_uses: WriteBehind[str, Use] = WriteBehind(_write, at_once=SESSIONS_IN_A_STATEMENT)


def write_uses() -> None:
    """Writes to the database when sessions were last used."""
    _uses.flush()


def drop_ended() -> None:
    """Deletes the rows of sessions that have ended."""
    UserSession.objects.exclude(session_key__in=Session.objects.values("session_key")).delete()
