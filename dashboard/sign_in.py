"""Shows sign-in (allauth's views) and passwords (Django's), with our pages, our mail and a limit on guesses."""

from typing import Any
from urllib.parse import urlsplit

from allauth.account.forms import LoginForm
from allauth.account.internal.stagekit import clear_login
from allauth.account.views import LoginView, LogoutView
from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import views
from django.contrib.auth.forms import PasswordChangeForm, PasswordResetForm, SetPasswordForm
from django.contrib.auth.tokens import default_token_generator
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.mail import EmailMessage
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse, reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.generic import FormView

from accounts import audit, single_sign_on, throttle
from accounts.models import User
from accounts.sign_in import may_use_password
from accounts.throttle import TooManyTries
from gateway.pages.mail import send_in_background

from .parts.access import context_of_named_account, login_required

RESET_SUBJECT = "Reset your password for {product}"
RESET_BODY = """\
Someone asked to reset the password of {email} at {origin}.

To choose a new password, open this link within {minutes} minutes:

{link}

If this was not you, ignore this email. Your password stays the same.
"""


CHANGED_SUBJECT = "Your password was changed"
CHANGED_BODY = """\
The password of {email} at {origin} was changed, and all other devices were signed out.

If this was not you, reset your password now: {origin}{path}
"""
OTHER_PERSON = "You are signed in as {email}. To sign in as another person, sign out first."


class SignInForm(LoginForm):
    """Asks for an address and a password. Raises TooManyTries."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, label_suffix="")

    def add_prefix(self, field_name: str) -> str:
        return "username" if field_name == "login" else super().add_prefix(field_name)


class NewPasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # it takes no type argument at run time
    """Asks for a new password, twice."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, label_suffix="")
        new, again = self.fields["new_password1"], self.fields["new_password2"]
        new.label, again.label = "New password", "Confirm new password"
        new.help_text = (
            f"At least {settings.MIN_PASSWORD_LENGTH} characters; not your address, a common password or only digits."
        )
        again.help_text = ""


class ChangeForm(NewPasswordForm, PasswordChangeForm):
    """Asks for the present password, with the same limit on guesses as signing in, and a new one."""

    def __init__(self, request: HttpRequest, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._request = request
        self.fields["old_password"].label = "Current password"

    def clean_old_password(self) -> str:
        try:
            with throttle.password_try(self._request, self.user.email):
                return str(super().clean_old_password())
        except ValidationError:
            raise ValidationError("Incorrect password.") from None


class ResetForm(PasswordResetForm):
    """Asks for the address to which a reset mail goes."""

    email = forms.EmailField(
        label="Email address",
        max_length=254,
        error_messages={"required": "Enter the address that you sign in with."},
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, label_suffix="")


class ThrottledFormView(FormView[forms.BaseForm]):
    """Answers a form with errors with 422, and too many tries with 429."""

    http_method_names = ["get", "head", "post", "options"]
    fault_status = 422

    @method_decorator(never_cache)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, **kwargs)  # Django's view, the other base of each subclass

    def post(self, request: HttpRequest, *args: str, **kwargs: Any) -> HttpResponse:
        try:
            return super().post(request, *args, **kwargs)
        except TooManyTries as error:
            # The form is shown empty, since what was typed has not been checked.
            form = self.get_form_class()(**self.get_form_kwargs() | {"data": None, "files": None})
            context = self.get_context_data(form=form, wait=error.minutes)
            return self.render_to_response(context, status=429, headers={"Retry-After": str(error.seconds)})

    def form_invalid(self, form: forms.BaseForm) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=self.fault_status)


@method_decorator([csrf_exempt, never_cache], name="dispatch")  # `_sign_in` checks the token
class SignIn(ThrottledFormView, LoginView):
    """Shows the login page."""

    # People who are signed in are redirected before the token is checked: a form that was open before has an old one.

    form_class = SignInForm
    template_name = "dashboard/login.html"
    fault_status = 200

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated:
            typed = request.POST.get("username", "").strip().lower()
            is_for_another = typed not in ("", request.user.email.lower())
            # A login without a page to go to was opened on purpose, after a new password for example.
            if is_for_another or (request.method == "GET" and not self.get_next_url()):
                messages.warning(request, OTHER_PERSON.format(email=request.user.email))
            return HttpResponseRedirect(self.get_success_url())
        return self._sign_in(request, *args, **kwargs)

    @method_decorator(csrf_protect)
    def _sign_in(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        clear_login(request)  # someone who comes back here before their code starts again
        return super().dispatch(request, *args, **kwargs)

    def get_form_class(self) -> type[SignInForm]:
        return self.form_class

    def get_next_url(self) -> str:
        # A login that led to this page or to the logout would redirect for ever.
        address = super().get_next_url() or ""
        return "" if urlsplit(address).path in (self.request.path, reverse("logout")) else address

    def get_default_success_url(self) -> str:
        return reverse(settings.LOGIN_REDIRECT_URL)

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        has_password_form = (
            settings.PASSWORD_SIGN_IN or "superuser" in self.request.GET or self.request.method == "POST"
        )
        return super().get_context_data(**context) | {
            "next": self.get_next_url(),
            "has_password_form": has_password_form,
            "single_sign_on": settings.OIDC_NAME if single_sign_on.is_configured() else "",
            "passwords_can_be_reset": settings.PASSWORD_SIGN_IN,
        }


class SignOut(LogoutView):
    """Signs the person out, or gives up a sign-in that waits for a second factor."""

    http_method_names = ["post", "options"]


@method_decorator([never_cache, login_required], name="dispatch")
class ChangePassword(ThrottledFormView, views.PasswordChangeView):
    """Changes a password. Django ends the person's other sessions."""

    form_class = ChangeForm
    template_name = "dashboard/password.html"
    success_url = reverse_lazy("overview")

    def get_form_kwargs(self) -> dict[str, Any]:
        return super().get_form_kwargs() | {"request": self.request}

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        return super().get_context_data(**context) | context_of_named_account(self.request)

    def form_valid(self, form: Any) -> HttpResponse:
        account = context_of_named_account(self.request).get("account")
        if account is not None:
            self.success_url = f"{self.success_url}?account={account.pk}"  # type: ignore[assignment]  # a lazy one above
        messages.success(self.request, "Password changed. You are signed out on all other devices.")
        send_in_background(_changed_mail(form.user))
        return super().form_valid(form)


class ResetPassword(ThrottledFormView, views.PasswordResetView):
    """Mails a link to the active person of an address."""

    # The answer does not show whether there is such a person, not even by its timing. A person without a password gets
    # the mail too: this is how first owners, and people added by staff, get in.

    form_class = ResetForm
    template_name = "dashboard/password_reset.html"
    success_url = reverse_lazy("password-reset-sent")

    def form_valid(self, form: Any) -> HttpResponse:
        throttle.require_reset(self.request)
        email = form.cleaned_data["email"]
        if throttle.may_mail(self.request, email):
            person = User.objects.filter(email=email.lower(), is_active=True).first()
            if person is not None and may_use_password(person):
                send_in_background(_reset_mail(person))
        return HttpResponseRedirect(self.get_success_url())


@method_decorator(never_cache, name="dispatch")
class ResetSent(views.PasswordResetDoneView):
    """Shows the page after the form, whether or not there is such a person."""

    template_name = "dashboard/password_reset_sent.html"


class ResetLink(ThrottledFormView, views.PasswordResetConfirmView):
    """Shows the page of the mail's link. Answers 410 if the link was used, is old or was made up."""

    form_class = NewPasswordForm
    template_name = "dashboard/password_reset_link.html"
    success_url = reverse_lazy("password-reset-done")

    def form_valid(self, form: Any) -> HttpResponse:
        send_in_background(_changed_mail(form.user))
        with audit.acting_as(audit.of_member(form.user)):  # who is not signed in
            return super().form_valid(form)

    def render_to_response(self, context: dict[str, Any], **options: Any) -> HttpResponse:
        options.setdefault("status", 200 if self.validlink else 410)
        return super().render_to_response(context, **options)


@method_decorator(never_cache, name="dispatch")
class ResetDone(views.PasswordResetCompleteView):
    """Shows the page after a reset."""

    template_name = "dashboard/password_reset_done.html"


@never_cache
def admin_login(request: HttpRequest) -> HttpResponseBase:
    """Redirects strangers from the admin's login to ours. People who are not staff get 403."""
    if not request.user.is_authenticated:
        return views.redirect_to_login(request.GET.get("next") or reverse("admin:index"), settings.LOGIN_URL)
    if not admin.site.has_permission(request):
        raise PermissionDenied
    return redirect("admin:index")


def admin_password(_request: HttpRequest) -> HttpResponseBase:
    """Redirects from the admin's password page to ours."""
    return redirect("password")


def _changed_mail(person: User) -> EmailMessage:
    body = CHANGED_BODY.format(email=person.email, origin=settings.PUBLIC_URL, path=reverse("password-reset"))
    return EmailMessage(CHANGED_SUBJECT, body, to=[person.email])


def _reset_mail(person: User) -> EmailMessage:
    # The link begins with PUBLIC_URL: a Host header could name another server.
    uid, token = urlsafe_base64_encode(force_bytes(person.pk)), default_token_generator.make_token(person)
    body = RESET_BODY.format(
        email=person.email,
        origin=settings.PUBLIC_URL,
        minutes=settings.PASSWORD_RESET_TIMEOUT // 60,
        link=f"{settings.PUBLIC_URL}{reverse('password-reset-link', args=[uid, token])}",
    )
    return EmailMessage(RESET_SUBJECT.format(product=settings.OPERATOR_NAME), body, to=[person.email])
