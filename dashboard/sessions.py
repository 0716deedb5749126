"""Shows the page that lists a person's sessions and signs them out."""

from typing import cast

from allauth.usersessions.internal.flows.sessions import end_other_sessions, end_sessions
from allauth.usersessions.models import UserSession
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from accounts import playground_keys
from accounts.models import User
from accounts.user_agents import describe

from .parts.access import context_of_named_account, signed_in_page


@signed_in_page("GET", "HEAD", "POST")
def sessions(request: HttpRequest) -> HttpResponse:
    """Lists the sessions, and ends one (the form's `session`) or all but this one."""
    person = cast(User, request.user)
    if request.method == "POST":
        return _end(request, person)
    UserSession.objects.create_from_request(request)  # this session, if it began before the list was kept
    found = sorted(UserSession.objects.purge_and_list(person), key=lambda each: each.last_seen_at, reverse=True)
    rows = [{"session": each, "device": describe(each.user_agent), "is_this": each.is_current()} for each in found]
    return render(request, "dashboard/sessions.html", {"rows": rows} | context_of_named_account(request))


def _end(request: HttpRequest, person: User) -> HttpResponse:
    if "session" in request.POST:
        number = request.POST["session"]
        found = UserSession.objects.filter(user=person, pk=number if number.isdecimal() and len(number) < 19 else 0)
        ending = [*found]
        end_sessions(request, ending)
        if ending:
            messages.success(request, "The session is signed out.")
    else:
        end_other_sessions(request, person)
        messages.success(request, "You are signed out everywhere else.")
    playground_keys.end(person.pk)
    return redirect("sessions")
