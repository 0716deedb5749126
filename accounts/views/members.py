"""The dashboard's pages on an account's people: every member sees them, owners change them."""

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from accounts import invitations
from accounts import members as rules
from accounts.member_forms import ROLE_RULE, InviteForm, RoleForm
from accounts.models import Account, Invitation, Membership
from accounts.pages import Place, account_page, member_page, place_in

LAST_OWNER = "An account keeps at least one owner. Make somebody else an owner first."


@account_page("GET", "HEAD", "POST")
def members(request: HttpRequest, place: Place) -> HttpResponse:
    """Who is in an account and who is invited, and a form that invites."""
    if request.method == "POST":
        place.require_owner()
    form = InviteForm(request.POST if request.method == "POST" else None)
    if form.is_valid() and _invited(form, place):
        messages.success(request, f"An invitation is on its way to {form.cleaned_data['email']}.")
        return redirect(address(place.account))
    context = {
        "members": rules.members_of(place.account),
        "invitations": Invitation.objects.open().filter(account=place.account).select_related("invited_by"),
        "form": form,
        "days": invitations.LIFETIME.days,
        "role_rule": ROLE_RULE,
    }
    return render(request, "accounts/members.html", place.context | context, status=422 if form.errors else 200)


@member_page("GET", "HEAD", "POST")
def member(request: HttpRequest, membership_id: int) -> HttpResponse:
    """One person in an account, and their role: for owners."""
    membership, place = _found(request, membership_id)
    place.require_owner()
    form = RoleForm(request.POST if request.method == "POST" else None, membership)
    if form.is_valid() and _changed(form, membership, place):
        role = membership.Role(form.cleaned_data["role"]).label
        messages.success(request, f"{membership.user.email}: the role is {role} now.")
        return redirect(address(place.account))
    context = {"member": membership, "form": form}
    return render(request, "accounts/member.html", place.context | context, status=422 if form.errors else 200)


@member_page("GET", "HEAD", "POST")
def remove(request: HttpRequest, membership_id: int) -> HttpResponse:
    """Asks first; a form sent from there ends a membership: somebody's by an owner, or one's own."""
    membership, place = _found(request, membership_id)
    own = membership.user_id == place.person.pk
    if not own:
        place.require_owner()
    if request.method == "POST" and _removed(membership, place):
        if own:
            messages.success(request, f"You have left {place.account.name}.")
            return redirect("overview")
        messages.success(request, f"{membership.user.email} is no longer in {place.account.name}.")
        return redirect(address(place.account))
    context = {"member": membership, "own": own, "last_owner": rules.is_last_owner(membership)}
    status = 422 if request.method == "POST" else 200
    return render(request, "accounts/remove_member.html", place.context | context, status=status)


def address(account: Account) -> str:
    """The list of an account's members."""
    return f"{reverse('members')}?account={account.pk}"


def _found(request: HttpRequest, membership_id: int) -> tuple[Membership, Place]:
    """The membership, where it is in an account that the person is a member of."""
    found = get_object_or_404(Membership.objects.select_related("user"), pk=membership_id)
    return found, place_in(request, found.account_id)


def _invited(form: InviteForm, place: Place) -> bool:
    try:
        invitations.invite(place.account.pk, form.cleaned_data["email"], form.cleaned_data["role"], by=place.person)
    except invitations.InvitationRefused as error:
        form.add_error("email", str(error))
        return False
    return True


def _changed(form: RoleForm, membership: Membership, place: Place) -> bool:
    try:
        rules.change_role(membership, form.cleaned_data["role"], by=place.person)
    except rules.LastOwner:
        form.add_error("role", LAST_OWNER)
        return False
    except rules.NotAMember:
        raise Http404 from None
    return True


def _removed(membership: Membership, place: Place) -> bool:
    try:
        rules.remove(membership, by=place.person)
    except rules.LastOwner:
        return False
    except rules.NotAMember:
        raise Http404 from None
    return True
