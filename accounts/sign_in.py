"""Adapts django-allauth: our limits on guesses, our mails, no sign-up, and whose password may be used."""

import time
from datetime import UTC, datetime
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.app_settings import REAUTHENTICATION_TIMEOUT
from allauth.account.internal.flows.login import get_authentication_records
from allauth.core import context
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate
from django.core.exceptions import PermissionDenied
from django.core.mail import EmailMessage
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from gateway.edge.address_limit import UNKNOWN, client_network
from gateway.pages.mail import send_in_background

from . import single_sign_on, throttle
from .models import User

SIGN_IN_AGAIN = "You signed in over five minutes ago. To change how you sign in, sign out and sign in again."
NOTICE = """\
{sentence}

Person: {email} at {origin}
When: {at:%Y-%m-%d %H:%M} UTC

If this was not you, sign in, change your password and look at your second factors and sessions: {origin}/security
"""
# The name of allauth's template, instead of which a mail with this subject and sentence is sent.
MAILS = {
    "mfa/email/totp_activated": ("An authenticator app was added", "Signing in now takes a code of your new app."),
    "mfa/email/totp_deactivated": ("Your authenticator app was removed", "Codes of the app no longer work."),
    "mfa/email/webauthn_added": ("A passkey was added", "You can now sign in with the new passkey."),
    "mfa/email/webauthn_removed": ("A passkey was removed", "You can no longer sign in with that passkey."),
    "mfa/email/recovery_codes_generated": (
        "Your recovery codes were replaced",
        "You have new recovery codes. The earlier ones no longer work.",
    ),
}
MESSAGES = {
    "mfa/messages/totp_activated.txt": "Authenticator app added.",
    "mfa/messages/totp_deactivated.txt": "Authenticator app removed.",
    "mfa/messages/webauthn_added.txt": "Passkey added.",
    "mfa/messages/webauthn_removed.txt": "Passkey removed.",
    "usersessions/messages/sessions_logged_out.txt": "You are signed out everywhere else.",
}


def may_use_password(person: User) -> bool:
    """Tells whether the person may sign in with a password. PASSWORD_SIGN_IN leaves that way to superusers."""
    return settings.PASSWORD_SIGN_IN or person.is_superuser


class AccountAdapter(DefaultAccountAdapter):
    """Changes what allauth does around signing in."""

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """Returns the person if the password is right. Raises ValidationError, TooManyTries."""
        with throttle.password_try(request, credentials["email"]):
            person = authenticate(request, **credentials)
            if not isinstance(person, User) or not may_use_password(person):
                raise self.validation_error("email_password_mismatch")
            return person

    def reauthenticate(self, user: User, password: str) -> bool:
        return self.authenticate(context.request, email=user.email, password=password) == user

    def is_reauthentication_required(self, *, app: str, **options: Any) -> bool:
        # A person with neither password nor second factor proves who they are by signing in.
        if self._own_methods(self.request.user):
            return super().is_reauthentication_required(app=app, **options)
        records = get_authentication_records(self.request, self.request.user)
        if records and time.time() - records[-1]["at"] < REAUTHENTICATION_TIMEOUT:
            return False
        if not single_sign_on.is_configured():
            raise PermissionDenied(SIGN_IN_AGAIN)
        return True

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        found = self._own_methods(user)
        if found or not single_sign_on.is_configured():
            return found
        return [{"id": "single_sign_on", "description": settings.OIDC_NAME, "url": reverse("single-sign-on")}]

    def _own_methods(self, user: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        return [each for each in found if each["id"] != "reauthenticate" or may_use_password(user)]

    def get_login_stages(self) -> list[str]:
        ours = {"allauth.mfa.stages.AuthenticateStage": "accounts.second_factors.SecondFactorStage"}
        return [ours.get(stage, stage) for stage in super().get_login_stages()]

    def is_open_for_signup(self, _request: HttpRequest) -> bool:
        return False

    def is_ajax(self, _request: HttpRequest) -> bool:
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        network = client_network(request.META)
        return "::" if network == UNKNOWN else network.partition("/")[0]

    def respond_user_inactive(self, _request: HttpRequest, _user: Any) -> HttpResponse:
        return redirect("login")

    def add_message(
        self, request: HttpRequest, level: int, message_template: str | None = None, *_args: Any, **options: Any
    ) -> None:
        words = options.get("message") or MESSAGES.get(message_template or "")
        if words:
            messages.add_message(request, level, words)

    def send_notification_mail(self, template_prefix: str, user: Any, *_args: Any, **_options: Any) -> None:
        subject, sentence = MAILS[template_prefix]
        body = NOTICE.format(sentence=sentence, email=user.email, origin=settings.PUBLIC_URL, at=datetime.now(UTC))
        send_in_background(EmailMessage(subject, body, to=[user.email]))
