"""The pages on an account's people: every member sees them, owners change them."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from accounts import invitations, members
from accounts.invitations import LIFETIME, InvitationRefused
from accounts.models import Invitation, Membership

from .access import AccountContext, account_context, account_page, page_address, signed_in_page

ROLES = [(role.value, role.label.capitalize()) for role in (Membership.Role.MEMBER, Membership.Role.OWNER)]
ROLE_RULE = "Owners also manage members, limits of keys and the low-balance threshold."
LAST_OWNER = "An account needs at least one owner. Make another member an owner first."


class InviteForm(forms.Form):
    """An address and a role."""

    email = forms.EmailField(
        label="Email address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )
    role = forms.ChoiceField(label="Role", choices=ROLES)

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="invite-%s", label_suffix="")

    def clean_email(self) -> str:
        """In lower case, as addresses are kept."""
        return str(self.cleaned_data["email"]).lower()


class RoleForm(forms.Form):
    """Another role."""

    role = forms.ChoiceField(label="Role", choices=ROLES, help_text=ROLE_RULE)

    def __init__(self, data: Any, membership: Membership) -> None:
        super().__init__(data, label_suffix="", initial={"role": membership.role})


@account_page("GET", "HEAD", "POST")
def member_list(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Who is in an account and who is invited, and a form that invites."""
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
        "invitations": Invitation.objects.open().filter(account=current.account).select_related("invited_by"),
        "form": form,
        "days": LIFETIME.days,
        "role_rule": ROLE_RULE,
    }
    return render(
        request, "dashboard/members.html", current.template_context | context, status=422 if form.errors else 200
    )


@signed_in_page("GET", "HEAD", "POST")
def member_detail(request: HttpRequest, membership_id: int) -> HttpResponse:
    """One person in an account, and their role: for owners."""
    membership, current = _membership(request, membership_id)
    current.require_owner()
    form = RoleForm(request.POST if request.method == "POST" else None, membership)
    if form.is_valid():
        role = Membership.Role(form.cleaned_data["role"])
        try:
            members.change_role(membership, role, by=current.person)
        except members.LastOwner:
            form.add_error("role", LAST_OWNER)
        except members.NotAMember:
            raise Http404 from None
        else:
            messages.success(request, f"{membership.user.email} is now {role.label}.")
            return redirect(page_address("members", current.account.pk))
    context = current.template_context | {"member": membership, "form": form}
    return render(request, "dashboard/member.html", context, status=422 if form.errors else 200)


@signed_in_page("GET", "HEAD", "POST")
def remove_member(request: HttpRequest, membership_id: int) -> HttpResponse:
    """Asks first; a form sent from there ends a membership: somebody's by an owner, or one's own."""
    membership, current = _membership(request, membership_id)
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
            raise Http404 from None
        else:
            who = "You have left" if own else f"{membership.user.email} is no longer in"
            messages.success(request, f"{who} {current.account.name}.")
            return redirect("overview" if own else page_address("members", current.account.pk))
    context = {"member": membership, "own": own, "last_owner": members.is_last_owner(membership)}
    return render(request, "dashboard/remove_member.html", current.template_context | context, status=status)


def _membership(request: HttpRequest, membership_id: int) -> tuple[Membership, AccountContext]:
    """The membership, where it is in an account that the person is a member of."""
    membership = get_object_or_404(Membership.objects.select_related("user"), pk=membership_id)
    return membership, account_context(request, membership.account_id)
