"""Lets staff invite members from an account's page in the admin."""

from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from gateway.pages.admin import RowPages

from . import invitations
from .models import INVITING_RIGHT, Account, Membership


class InvitationForm(forms.Form):
    """Asks for an address and a role."""

    email = forms.EmailField(
        label="Email address",
        max_length=254,
        widget=forms.EmailInput(attrs={"class": "vTextField", "autocomplete": "off", "autocapitalize": "none"}),
    )
    role = forms.ChoiceField(choices=invitations.ROLES, help_text=invitations.ROLE_RULE)


class InvitationPages(RowPages):
    """Adds the page that invites a member to the admin of accounts."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.invite_member)
        return [path("<path:object_id>/invite/", view, name="accounts_account_invite"), *super().get_urls()]

    def invite_member(self, request: HttpRequest, object_id: str) -> HttpResponse:
        allowed = self.has_view_permission(request) and request.user.has_perm(INVITING_RIGHT)
        account: Account = self.row_or_404(request, object_id, allowed=allowed)
        role = Membership.Role.MEMBER if account.membership_set.exists() else Membership.Role.OWNER
        form = InvitationForm(request.POST if request.method == "POST" else None, initial={"role": role})
        if form.is_valid() and self._invite(request, account, form):
            return HttpResponseRedirect(reverse("admin:accounts_account_change", args=[account.pk]))
        template, days = "admin/accounts/account/invite.html", invitations.LIFETIME.days
        return self.row_page(request, template, account, form, title="Invite a member", days=days)

    def _invite(self, request: Any, account: Account, form: InvitationForm) -> bool:
        try:
            with transaction.atomic():
                invitation = invitations.invite(account.pk, **form.cleaned_data, by=request.user)
                self.log_change(request, account, f"Invited {invitation.email} as {invitation.role_in_words}.")
        except invitations.InvitationRefused as error:
            form.add_error("email", str(error))
            return False
        invitations.mail(invitation, by=request.user)
        self.message_user(request, f"An invitation has been sent to {invitation.email}.", messages.SUCCESS)
        return True
