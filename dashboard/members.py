"""Shows the pages on an account's members, which owners may change, and the page that invitations lead to."""

from typing import Any
from uuid import UUID

from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.models import Login
from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from accounts import invitations, members, single_sign_on
from accounts.invitations import LIFETIME, InvitationRefused
from accounts.models import Account, Invitation, Membership, User

from .parts.access import AccountContext, account_context, account_page, page_address, signed_in_page
from .sign_in import NewPasswordForm

LAST_OWNER = "An account needs at least one owner. Make another member an owner first."


class InviteForm(forms.Form):
    """Asks for the address and the role of a person to invite."""

    email = forms.EmailField(
        label="Email address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    role = forms.ChoiceField(label="Role", choices=invitations.ROLES)

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="invite-%s", label_suffix="")

    def clean_email(self) -> str:
        return str(self.cleaned_data["email"]).lower()


class RoleForm(forms.Form):
    """Asks for a member's new role."""

    role = forms.ChoiceField(label="Role", choices=invitations.ROLES, help_text=invitations.ROLE_RULE)

    def __init__(self, data: Any, membership: Membership) -> None:
        super().__init__(data, label_suffix="", initial={"role": membership.role})


@account_page("GET", "HEAD", "POST")
def member_list(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Lists an account's members and open invitations, and sends invitations."""
    if request.method == "POST":
        current.require_owner()
    form = InviteForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        email, role = form.cleaned_data["email"], form.cleaned_data["role"]
        try:
            invitations.send(current.account.pk, email, role, by=current.person)
        except InvitationRefused as error:
            form.add_error("email", str(error))
        else:
            messages.success(request, f"An invitation has been sent to {email}.")
            return redirect(page_address("members", current.account.pk))
    context = {
        "members": members.members_of(current.account),
        "invitations": Invitation.objects.acceptable().filter(account=current.account).select_related("invited_by"),
        "form": form,
        "days": LIFETIME.days,
        "role_rule": invitations.ROLE_RULE,
    }
    return current.page(request, "members", context, form)


@signed_in_page("GET", "HEAD", "POST")
def member_detail(request: HttpRequest, membership_id: int) -> HttpResponse:
    """Lets owners change a member's role."""
    membership, current = _membership(request, membership_id)
    current.require_owner()
    if membership is None:
        return _gone(request, current)
    form = RoleForm(request.POST if request.method == "POST" else None, membership)
    if form.is_valid():
        role = Membership.Role(form.cleaned_data["role"])
        try:
            members.change_role(membership, role, by=current.person)
        except members.LastOwner:
            form.add_error("role", LAST_OWNER)
        except members.NotAMember:
            return _gone(request, current)
        else:
            messages.success(request, f"{membership.user.email} is now {role.label}.")
            return redirect(page_address("members", current.account.pk))
    return current.page(request, "member", {"member": membership, "form": form}, form)


@signed_in_page("GET", "HEAD", "POST")
def remove_member(request: HttpRequest, membership_id: int) -> HttpResponse:
    """Asks for a confirmation on GET, and removes the member on POST. Owners may remove anyone, others themselves."""
    membership, current = _membership(request, membership_id)
    if membership is None:
        return _gone(request, current)
    own = membership.user_id == current.person.pk
    if not own:
        current.require_owner()
    status = 200
    if request.method == "POST":
        try:
            members.remove(membership, by=current.person)
        except members.LastOwner:
            status = 422
        except members.NotAMember:
            return _gone(request, current)
        else:
            who = "You have left" if own else f"{membership.user.email} is no longer in"
            messages.success(request, f"{who} {current.account.name}.")
            return redirect("overview" if own else page_address("members", current.account.pk))
    context = {"member": membership, "own": own, "last_owner": members.is_last_owner(membership)}
    return render(request, "dashboard/remove_member.html", current.template_context | context, status=status)


def _membership(request: HttpRequest, membership_id: int) -> tuple[Membership | None, AccountContext]:
    """Returns a membership of the account that the address names, or None if it has ended. Raises Http404."""
    rows, account_id = Membership.objects.select_related("user"), request.GET.get("account")
    if account_id is None:
        membership = get_object_or_404(rows, pk=membership_id)
        return membership, account_context(request, membership.account_id)
    current = account_context(request, account_id)
    return rows.filter(pk=membership_id, account=current.account).first(), current


def _gone(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Redirects from an outdated page to the list."""
    messages.info(request, f"This person has already been removed from {current.account.name}.")
    return redirect(page_address("members", current.account.pk))


class ChoosePasswordForm(NewPasswordForm):
    """Asks a newcomer for their first password, twice."""

    def __init__(self, user: User, data: Any) -> None:
        super().__init__(user, data)
        self.fields["new_password1"].label, self.fields["new_password2"].label = "Password", "Confirm password"


@signed_in_page("GET", "HEAD", "POST")
def change_invitation(request: HttpRequest, invitation_id: UUID) -> HttpResponse:
    """Sends an open invitation again or revokes it, depending on the form's `action`."""
    # A GET changes nothing and goes to the list: a login redirects here with one.
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
    """Shows the page of an invitation's link, on which the person joins."""
    # A GET changes nothing, since mail scanners follow links: joining needs a form.
    try:
        invited = invitations.invitation_of(signed)
        if isinstance(request.user, User):
            return _for_person(request, request.user, invited)
        return _for_stranger(request, invited)
    except invitations.InvitationGone:
        return render(request, "dashboard/invitation_gone.html", status=410)


def _for_person(request: HttpRequest, person: User, invited: Invitation) -> HttpResponse:
    if person.email != invited.email:
        return _page(request, invited, "other", status=403 if request.method == "POST" else 200)
    if request.method != "POST":
        return _page(request, invited, "invited")
    invitations.accept(invited, person)
    return _welcome(request, invited.account, person)


def _for_stranger(request: HttpRequest, invited: Invitation) -> HttpResponse:
    # The link proves the mailbox, so that a newcomer may choose a password here.
    newcomer = invitations.newcomer(invited.email)
    if newcomer is None:
        return _page(request, invited, "known", status=403 if request.method == "POST" else 200)
    if single_sign_on.is_configured() and not settings.PASSWORD_SIGN_IN:
        return _page(request, invited, "provider", status=403 if request.method == "POST" else 200)
    form = ChoosePasswordForm(newcomer, request.POST if request.method == "POST" else None)
    if not form.is_valid():
        return _page(request, invited, "new", form=form, status=422 if form.errors else 200)
    try:
        person = invitations.accept_as_newcomer(invited, form.cleaned_data["new_password1"])
    except invitations.PersonExists:
        return redirect(request.path)  # where the page now offers to sign in
    welcome = _welcome(request, invited.account, person)
    record_authentication(request, person, "password")
    response: HttpResponse = perform_login(request, Login(user=person, redirect_url=welcome.url))
    return response


def _welcome(request: HttpRequest, account: Account, person: User) -> HttpResponseRedirect:
    role = Membership.objects.get(account=account, user=person).role
    role = "an owner" if role == Membership.Role.OWNER else "a member"
    messages.success(request, f"Welcome. You are now {role} of {account.name}.")
    return redirect(page_address("overview", account.pk))


def _page(
    request: HttpRequest, invited: Invitation, reader: str, *, status: int = 200, form: ChoosePasswordForm | None = None
) -> HttpResponse:
    """Renders the page.

    `reader` is invited, other (another person), known (has a password), new (has none) or provider (has to use it).
    """
    context = {"invitation": invited, "reader": reader, "form": form, "single_sign_on": settings.OIDC_NAME}
    return render(request, "dashboard/invitation.html", context, status=status)


def _ending(invitation: Invitation) -> str:
    """Says why an invitation is not open; empty if it is."""
    if invitation.accepted_at is not None:
        return f"{invitation.email} has already joined."
    if invitation.revoked_at is not None:
        return f"The invitation of {invitation.email} has already been revoked."
    if invitation.expires_at <= timezone.now():
        return f"The invitation of {invitation.email} has expired. Invite them again."
    return ""
