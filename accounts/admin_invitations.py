"""Staff invite people on an account's page in the admin: the owners' invitation and mail, and a line of the history."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from . import invitations
from .models import Account, Membership


class InvitationForm(forms.Form):
    """An address and a role."""

    email = forms.EmailField(
        label="Email address",
        max_length=254,
        widget=forms.EmailInput(attrs={"class": "vTextField", "autocomplete": "off", "autocapitalize": "none"}),
    )
    role = forms.ChoiceField(
        choices=[(role.value, role.label.capitalize()) for role in (Membership.Role.MEMBER, Membership.Role.OWNER)],
        help_text="Owners also manage members, limits of keys and the low-balance threshold.",
    )


class InvitesMembers(admin.ModelAdmin[Account]):
    """The view, for the admin of accounts."""

    def get_urls(self) -> list[URLPattern]:
        """Django's, and the view's in front of them."""
        view = self.admin_site.admin_view(self.invite_member)
        return [path("<path:object_id>/invite/", view, name="accounts_account_invite"), *super().get_urls()]

    def invite_member(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """GET: the form. POST: invites, mails the link, and returns to the account."""
        if not self.has_view_permission(request) or not request.user.has_perm(invitations.STAFF_RIGHT):
            raise PermissionDenied
        account = self.get_object(request, unquote(object_id))
        if account is None:
            raise Http404
        role = Membership.Role.MEMBER if account.membership_set.exists() else Membership.Role.OWNER
        form = InvitationForm(request.POST if request.method == "POST" else None, initial={"role": role})
        if form.is_valid() and self._invite(request, account, form):
            return HttpResponseRedirect(reverse("admin:accounts_account_change", args=[account.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": "Invite a member",
            "subtitle": str(account),
            "opts": self.opts,
            "account": account,
            "form": form,
            "days": invitations.LIFETIME.days,
        }
        status = 422 if form.errors else 200
        return TemplateResponse(request, "admin/accounts/account/invite.html", context, status=status)

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
