"""What owners do with an open invitation, and the page that its link opens."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from accounts import invitations
from accounts.member_forms import ChoosePasswordForm
from accounts.models import Account, Invitation, User
from accounts.pages import Place, member_page, person_of, place_in
from accounts.views.members import address


@member_page("GET", "HEAD", "POST")
def change_invitation(request: HttpRequest, invitation_id: UUID) -> HttpResponse:
    """Sends an open invitation again, or revokes it: the form's `action`. A GET, as after a login, finds the list."""
    found = get_object_or_404(Invitation, pk=invitation_id)
    place = place_in(request, found.account_id)
    if request.method != "POST":
        return redirect(address(place.account))
    place.require_owner()
    ending = _ending(found)
    match request.POST.get("action"):
        case _ if ending:
            messages.info(request, ending)
        case "resend":
            _resend(request, found, place)
        case "revoke":
            invitations.revoke(found, by=place.person)
            messages.success(request, f"The invitation of {found.email} is revoked. Its link opens nothing any more.")
    return redirect(address(place.account))


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest, signed: str) -> HttpResponse:
    """What an invitation's link opens. Looking changes nothing: mail scanners follow links. Joining is a form."""
    try:
        found = invitations.behind(signed)
        if request.user.is_authenticated:
            return _for_person(request, found)
        return _for_stranger(request, found)
    except invitations.InvitationGone:
        return render(request, "accounts/invitation_gone.html", status=410)


def _for_person(request: HttpRequest, found: Invitation) -> HttpResponse:
    """For whoever is signed in: the invited person joins, anybody else signs out first."""
    person = person_of(request)
    if person.email != found.email:
        return _page(request, found, "other", status=403 if request.method == "POST" else 200)
    if request.method != "POST":
        return _page(request, found, "invited")
    invitations.accept(found, person)
    return _welcomed(request, found.account)


def _for_stranger(request: HttpRequest, found: Invitation) -> HttpResponse:
    """For nobody in particular: the link proves the mailbox, so that a newcomer may choose a password here."""
    person = invitations.newcomer(found.email)
    if person is None:
        return _page(request, found, "known", status=403 if request.method == "POST" else 200)
    form = ChoosePasswordForm(person, request.POST if request.method == "POST" else None)
    if form.is_valid():
        return _joined(request, found, form.cleaned_data["new_password1"])
    return _page(request, found, "new", form=form, status=422 if form.errors else 200)


def _joined(request: HttpRequest, found: Invitation, password: str) -> HttpResponse:
    try:
        person: User = invitations.accept_as_newcomer(found, password)
    except invitations.PersonExists:
        return redirect(request.path)  # which says that they can sign in
    login(request, person)
    return _welcomed(request, found.account)


def _welcomed(request: HttpRequest, account: Account) -> HttpResponseRedirect:
    role = "an owner" if place_in(request, account.pk).is_owner else "a member"
    messages.success(request, f"Welcome. You are {role} of {account.name} now.")
    return redirect(f"{reverse('overview')}?account={account.pk}")


def _page(
    request: HttpRequest, found: Invitation, reader: str, *, status: int = 200, form: ChoosePasswordForm | None = None
) -> HttpResponse:
    """`reader` is invited, other (somebody else), known (has a password) or new."""
    context = {"invitation": found, "reader": reader, "form": form}
    return render(request, "accounts/invitation.html", context, status=status)


def _ending(found: Invitation) -> str:
    """What became of an invitation that is not open any more, in words; empty where it is."""
    if found.accepted_at is not None:
        return f"{found.email} has joined already."
    if found.revoked_at is not None:
        return f"The invitation of {found.email} was revoked already."
    if found.expires_at <= timezone.now():
        return f"The invitation of {found.email} has lapsed. Invite them again."
    return ""


def _resend(request: HttpRequest, found: Invitation, place: Place) -> None:
    try:
        invitations.invite(found.account_id, found.email, found.role, by=place.person)
    except invitations.InvitationRefused as error:
        messages.warning(request, str(error))
    else:
        messages.success(request, f"The invitation is on its way to {found.email} again.")
