"""Signing in, and passwords: Django's views, with our pages, our mail and a limit on guesses."""

from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth import views
from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse, reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import FormView

from accounts import password_reset, throttle
from accounts.pages import for_the_signed_in, named_place
from accounts.password_forms import ChangeForm, NewPasswordForm, ResetForm, SignInForm
from accounts.throttle import TooManyTries


class ThrottledFormView(FormView[BaseForm]):
    """A form that says 422 where it has a fault, and 429 with the wait where there were too many tries."""

    http_method_names = ["get", "head", "post", "options"]
    fault_status = 422

    @method_decorator(never_cache)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, **kwargs)  # of Django's view beside this class, with all its checks

    def post(self, request: HttpRequest, *args: str, **kwargs: Any) -> HttpResponse:
        try:
            return super().post(request, *args, **kwargs)
        except TooManyTries as error:
            return self._too_many(error)

    def form_invalid(self, form: BaseForm) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=self.fault_status)

    def _too_many(self, error: TooManyTries) -> HttpResponse:
        """The page with an empty form: what was typed has not been checked."""
        form = self.get_form_class()(**self.get_form_kwargs() | {"data": None, "files": None})
        context = self.get_context_data(form=form, wait=error.minutes)
        return self.render_to_response(context, status=429, headers={"Retry-After": str(error.seconds)})


@method_decorator([csrf_exempt, never_cache], name="dispatch")  # LoginView's own `dispatch` asks for the token
class SignIn(ThrottledFormView, views.LoginView):
    """The login page. Whoever is signed in is sent on, whatever they send: a form of before that has an old token."""

    form_class = SignInForm
    fault_status = 200

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated:
            return HttpResponseRedirect(self.get_success_url())
        return super().dispatch(request, *args, **kwargs)

    def get_redirect_url(self, request: HttpRequest | None = None) -> str:
        """Where `next` leads, unless that is this page or the logout, which would redirect for ever."""
        wanted = super().get_redirect_url()
        return "" if urlsplit(wanted).path in (self.request.path, reverse("logout")) else wanted


@method_decorator([never_cache, for_the_signed_in], name="dispatch")
class ChangePassword(ThrottledFormView, views.PasswordChangeView):
    """A new password for who is signed in. Django ends the person's other sessions."""

    form_class = ChangeForm
    template_name = "accounts/password.html"
    success_url = reverse_lazy("overview")

    def get_form_kwargs(self) -> dict[str, Any]:
        return super().get_form_kwargs() | {"request": self.request}

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        return super().get_context_data(**context) | named_place(self.request)

    def form_valid(self, form: Any) -> HttpResponse:
        account = named_place(self.request).get("account")
        if account is not None:
            self.success_url = f"{self.success_url}?account={account.pk}"  # type: ignore[assignment]  # a lazy one above
        messages.success(self.request, "Your password is changed. You are signed out everywhere else.")
        return super().form_valid(form)


class ResetPassword(ThrottledFormView, views.PasswordResetView):
    """Mails a link. The answer is the same, as soon, whether anybody has that address."""

    form_class = ResetForm
    template_name = "accounts/password_reset.html"
    success_url = reverse_lazy("password-reset-sent")

    def form_valid(self, form: Any) -> HttpResponse:
        throttle.require_reset(self.request)
        email = form.cleaned_data["email"]
        if throttle.may_mail(self.request, email):
            password_reset.send_link(email)
        return HttpResponseRedirect(self.get_success_url())


@method_decorator(never_cache, name="dispatch")
class ResetSent(views.PasswordResetDoneView):
    """Says that a mail is under way, if there is anybody to get it."""

    template_name = "accounts/password_reset_sent.html"


class ResetLink(ThrottledFormView, views.PasswordResetConfirmView):
    """Where the mail's link leads: choose a password. 410 where the link is used, old or made up."""

    form_class = NewPasswordForm
    template_name = "accounts/password_reset_link.html"
    success_url = reverse_lazy("password-reset-done")

    def render_to_response(self, context: dict[str, Any], **options: Any) -> HttpResponse:
        options.setdefault("status", 200 if self.validlink else 410)
        return super().render_to_response(context, **options)


@method_decorator(never_cache, name="dispatch")
class ResetDone(views.PasswordResetCompleteView):
    """Says that the new password is good."""

    template_name = "accounts/password_reset_done.html"
