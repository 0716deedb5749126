"""Invitations: what owners do with an open one, and the page that its link opens."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from accounts import invitations
from accounts.models import Account, Invitation, User

from .access import account_context, page_address, signed_in_page
from .sign_in import NewPasswordForm


class ChoosePasswordForm(NewPasswordForm):
    """A newcomer's first password, twice."""

    def __init__(self, user: User, data: Any) -> None:
        super().__init__(user, data)
        self.fields["new_password1"].label, self.fields["new_password2"].label = "Password", "Confirm password"


@signed_in_page("GET", "HEAD", "POST")
def change_invitation(request: HttpRequest, invitation_id: UUID) -> HttpResponse:
    """Sends an open invitation again, or revokes it: the form's `action`. A GET, as after a login, finds the list."""
    invitation = get_object_or_404(Invitation, pk=invitation_id)
    current = account_context(request, invitation.account_id)
    if request.method == "POST":
        current.require_owner()
        match request.POST.get("action"):
            case _ if ending := _ending(invitation):
                messages.info(request, ending)
            case "resend":
                try:
                    invitations.send(invitation.account_id, invitation.email, invitation.role, by=current.person)
                except invitations.InvitationRefused as error:
                    messages.warning(request, str(error))
                else:
                    messages.success(request, f"The invitation has been sent to {invitation.email} again.")
            case "revoke":
                invitations.revoke(invitation, by=current.person)
                revoked = f"The invitation of {invitation.email} has been revoked. Its link no longer works."
                messages.success(request, revoked)
    return redirect(page_address("members", current.account.pk))


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def open_invitation(request: HttpRequest, signed: str) -> HttpResponse:
    """What an invitation's link opens. Looking changes nothing: mail scanners follow links. Joining is a form."""
    try:
        invited = invitations.behind(signed)
        if isinstance(request.user, User):
            return _for_person(request, request.user, invited)
        return _for_stranger(request, invited)
    except invitations.InvitationGone:
        return render(request, "dashboard/invitation_gone.html", status=410)


def _for_person(request: HttpRequest, person: User, invited: Invitation) -> HttpResponse:
    """For whoever is signed in: the invited person joins, anybody else signs out first."""
    if person.email != invited.email:
        return _page(request, invited, "other", status=403 if request.method == "POST" else 200)
    if request.method != "POST":
        return _page(request, invited, "invited")
    invitations.accept(invited, person)
    return _welcome(request, invited.account)


def _for_stranger(request: HttpRequest, invited: Invitation) -> HttpResponse:
    """For nobody in particular: the link proves the mailbox, so that a newcomer may choose a password here."""
    newcomer = invitations.newcomer(invited.email)
    if newcomer is None:
        return _page(request, invited, "known", status=403 if request.method == "POST" else 200)
    form = ChoosePasswordForm(newcomer, request.POST if request.method == "POST" else None)
    if not form.is_valid():
        return _page(request, invited, "new", form=form, status=422 if form.errors else 200)
    try:
        person = invitations.accept_as_newcomer(invited, form.cleaned_data["new_password1"])
    except invitations.PersonExists:
        return redirect(request.path)  # which says that they can sign in
    login(request, person)
    return _welcome(request, invited.account)


def _welcome(request: HttpRequest, account: Account) -> HttpResponseRedirect:
    role = "an owner" if account_context(request, account.pk).is_owner else "a member"
    messages.success(request, f"Welcome. You are now {role} of {account.name}.")
    return redirect(page_address("overview", account.pk))


def _page(
    request: HttpRequest, invited: Invitation, reader: str, *, status: int = 200, form: ChoosePasswordForm | None = None
) -> HttpResponse:
    """`reader` is invited, other (somebody else), known (has a password) or new."""
    context = {"invitation": invited, "reader": reader, "form": form}
    return render(request, "dashboard/invitation.html", context, status=status)


def _ending(invitation: Invitation) -> str:
    """Why an invitation is not open any more, in words; empty where it is open."""
    if invitation.accepted_at is not None:
        return f"{invitation.email} has already joined."
    if invitation.revoked_at is not None:
        return f"The invitation of {invitation.email} has already been revoked."
    if invitation.expires_at <= timezone.now():
        return f"The invitation of {invitation.email} has expired. Invite them again."
    return ""
