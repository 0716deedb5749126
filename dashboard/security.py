"""Shows the pages on second factors: authenticator app, recovery codes, passkeys. allauth does the work."""

import base64
import json
from typing import Any

from allauth.account.forms import ReauthenticateForm
from allauth.account.views import ReauthenticateView
from allauth.core import context
from allauth.mfa.base.forms import AuthenticateForm, BaseAuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as CodeAgainForm
from allauth.mfa.base.views import AuthenticateView, IndexView
from allauth.mfa.base.views import ReauthenticateView as CodeAgainView
from allauth.mfa.recovery_codes.views import GenerateRecoveryCodesView, ViewRecoveryCodesView
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.totp.internal.auth import SECRET_SESSION_KEY, generate_totp_secret, validate_totp_code
from allauth.mfa.totp.views import ActivateTOTPView, DeactivateTOTPView
from allauth.mfa.webauthn.forms import AddWebAuthnForm, EditWebAuthnForm
from allauth.mfa.webauthn.internal import auth as passkeys
from allauth.mfa.webauthn.views import (
    AddWebAuthnView,
    EditWebAuthnView,
    LoginWebAuthnView,
    ReauthenticateWebAuthnView,
    RemoveWebAuthnView,
)
from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from accounts import throttle
from accounts.second_factors import has_second_factor, lacks_required_factor
from accounts.throttle import TooManyTries
from gateway.encryption import CannotDecrypt, decrypt, encrypt

from .parts.access import context_of_named_account, login_required

WRONG_CODE = "This code is wrong or has been used. Enter the newest code."
WRONG_PASSKEY = "The passkey was not accepted. Try again."  # a sentence
LONGEST_NAME = 100


class FactorPage:
    """Shows a page of second factors in our layout; a form with errors has status 422, and too many tries 429."""

    http_method_names = ("get", "head", "post")

    @method_decorator(never_cache)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return super().dispatch(request, *args, **kwargs)  # type: ignore[misc]  # allauth's view
        except TooManyTries as error:
            page = {"wait": error.minutes}
            response = self.response_class(request, "dashboard/wait_page.html", page, status=429)  # type: ignore[attr-defined]
            response["Retry-After"] = str(error.seconds)
            return response

    def render_to_response(self, context: dict[str, Any], **options: Any) -> HttpResponse:
        found = (value for value in context.values() if isinstance(value, forms.BaseForm))
        if any(form.is_bound and form.errors for form in found):
            options.setdefault("status", 422)
        return super().render_to_response(context, **options)  # type: ignore[misc]


class OwnPage(FactorPage):
    """Is a page of a signed-in person's own factors."""

    @method_decorator(login_required)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().get_context_data(**kwargs)  # type: ignore[misc]
        return found | context_of_named_account(self.request)  # type: ignore[attr-defined]


class CodeForm(BaseAuthenticateForm):
    """Asks for a code of the app or a recovery code. Raises TooManyTries."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, label_suffix="")
        _name_code(self.fields["code"], "Code")

    def clean_code(self) -> str:
        with throttle.code_try(context.request, self.user.pk):
            try:
                return str(super().clean_code())
            except ValidationError:
                raise ValidationError(WRONG_CODE) from None


class SignInCodeForm(CodeForm, AuthenticateForm):
    """Asks for a code after the password."""


class AgainCodeForm(CodeForm, CodeAgainForm):
    """Asks for a code before a change."""


class NewAppForm(ActivateTOTPForm):
    """Asks for the first code of a new app. The session keeps the secret encrypted until then. Raises TooManyTries."""

    def __init__(self, *, user: Any, **options: Any) -> None:
        forms.Form.__init__(self, **options, label_suffix="")
        _name_code(self.fields["code"], "Code of the app")
        self.user, session = user, context.request.session
        sealed = session.get(SECRET_SESSION_KEY) if self.is_bound else None
        try:
            self.secret = decrypt(sealed or "")
        except CannotDecrypt:  # the page was opened first, or the session is another one
            self.secret = generate_totp_secret()
            session[SECRET_SESSION_KEY] = encrypt(self.secret)

    def clean_code(self) -> str:
        code = str(self.cleaned_data["code"])
        with throttle.code_try(context.request, self.user.pk):
            if not validate_totp_code(self.secret, code):
                raise ValidationError("This code does not belong to the secret. Enter the newest code of the app.")
        return code


class PasswordForm(ReauthenticateForm):
    """Asks for the password before a change. Raises TooManyTries."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, label_suffix="")

    def clean_password(self) -> str:
        try:
            return str(super().clean_password())
        except ValidationError:
            raise ValidationError("Incorrect password.") from None


class PasskeyForm(AddWebAuthnForm):
    """Asks for the name of a new passkey, and for what the browser made."""

    name = forms.CharField(label="Name", max_length=LONGEST_NAME, required=False)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, label_suffix="")
        del self.fields["passwordless"]


class PasskeyNameForm(EditWebAuthnForm):
    """Asks for another name of a passkey."""

    name = forms.CharField(label="Name", max_length=LONGEST_NAME)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, label_suffix="")


class Factors(OwnPage, IndexView):
    """Lists the person's second factors."""

    template_name = "dashboard/security.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        found = super().get_context_data(**kwargs)
        factors = found["authenticators"]
        codes = factors.get("recovery_codes")
        return found | {
            "app": factors.get("totp"),
            "passkeys": factors.get("webauthn", []),
            "codes_left": None if codes is None else len(codes.get_unused_codes()),
            "has_factor": has_second_factor(self.request.user),
            "lacks_factor": lacks_required_factor(self.request, self.request.user),
        }


class AddApp(OwnPage, ActivateTOTPView):
    """Adds an authenticator app: shows the secret, as a picture too, and asks for a code."""

    template_name = "dashboard/security_app.html"

    def get_form_class(self) -> type[NewAppForm]:
        return NewAppForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        found = super().get_context_data(**kwargs)
        secret = found["form"].secret
        picture = base64.b64encode(found["totp_svg"].encode()).decode()
        return found | {
            "secret": " ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
            "picture": f"data:image/svg+xml;base64,{picture}",
        }


class RemoveApp(OwnPage, DeactivateTOTPView):
    """Asks whether to remove the authenticator app."""

    template_name = "dashboard/security_remove_app.html"


class RecoveryCodes(OwnPage, ViewRecoveryCodesView):
    """Shows the recovery codes once, after they were made."""

    template_name = "dashboard/security_codes.html"


class NewRecoveryCodes(OwnPage, GenerateRecoveryCodesView):
    """Asks whether to replace the recovery codes."""

    template_name = "dashboard/security_new_codes.html"


class PasskeyPage(OwnPage):
    """Is a page about one of the person's passkeys."""

    success_url = reverse_lazy("mfa_index")


class AddPasskey(PasskeyPage, AddWebAuthnView):
    """Adds a passkey that the browser makes."""

    template_name = "dashboard/security_passkey.html"

    def get_form_class(self) -> type[PasskeyForm]:
        return PasskeyForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        options = passkeys.begin_registration(self.request.user, passwordless=True)
        found = super(AddWebAuthnView, self).get_context_data(**kwargs)
        return found | context_of_named_account(self.request) | {"options": _as_json(options)}


class RenamePasskey(PasskeyPage, EditWebAuthnView):
    """Gives a passkey another name."""

    template_name = "dashboard/security_rename_passkey.html"

    def get_form_class(self) -> type[PasskeyNameForm]:
        return PasskeyNameForm


class RemovePasskey(PasskeyPage, RemoveWebAuthnView):
    """Asks whether to remove a passkey."""

    template_name = "dashboard/security_remove_passkey.html"


class PasswordAgain(OwnPage, ReauthenticateView):
    """Asks for the password before a change of second factors."""

    template_name = "dashboard/confirm_password.html"

    def get_form_class(self) -> type[PasswordForm]:
        return PasswordForm


class CodeAgain(OwnPage, CodeAgainView):
    """Asks for a code before a change of second factors."""

    template_name = "dashboard/confirm_code.html"

    def get_form_class(self) -> type[AgainCodeForm]:
        return AgainCodeForm


class PasskeyAgain(OwnPage, ReauthenticateWebAuthnView):
    """Asks for a passkey before a change of second factors."""

    template_name = "dashboard/confirm_passkey.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        found = super().get_context_data(**kwargs)
        return found | {"options": _as_json(found["js_data"]["request_options"])}

    def form_invalid(self, _form: forms.BaseForm) -> HttpResponse:
        messages.error(self.request, WRONG_PASSKEY)
        return redirect(self.request.get_full_path())


class SecondStep(FactorPage, AuthenticateView):
    """Asks for the second factor after the password."""

    template_name = "dashboard/second_step.html"

    def get_form_class(self) -> type[SignInCodeForm]:
        return SignInCodeForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        found = super().get_context_data(**kwargs)
        person = self.stage.login.user
        return found | {
            "options": _as_json(found["js_data"]["request_options"]),
            "has_passkey": bool(passkeys.get_credentials(person)),
            "has_codes": self.auth_form is not None and _has_codes(person),
        }


class PasskeySignIn(FactorPage, LoginWebAuthnView):
    """Gives the browser a challenge, and signs in the person whose passkey signs it."""

    def get(self, _request: HttpRequest, *_args: Any, **_kwargs: Any) -> HttpResponse:
        return JsonResponse(passkeys.begin_authentication(user=None))

    def form_invalid(self, _form: forms.BaseForm) -> HttpResponse:
        messages.error(self.request, WRONG_PASSKEY)
        return redirect("login")


def _has_codes(person: Any) -> bool:
    return bool(person.authenticator_set.exclude(type="webauthn").exists())


def _name_code(field: forms.Field, label: str) -> None:
    field.label = label
    field.widget.attrs = {"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false"}


def _as_json(options: dict[str, Any]) -> str:
    return json.dumps(options)
