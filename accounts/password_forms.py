"""The forms of signing in and of passwords: Django's own, with the limit on guesses."""

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, PasswordResetForm, SetPasswordForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from . import throttle


class SignInForm(AuthenticationForm):
    """An address and a password, which is not looked at while there are too many failures: raises TooManyTries."""

    def clean(self) -> dict[str, Any]:
        request, email, password = self.request, self.cleaned_data.get("username"), self.cleaned_data.get("password")
        assert request is not None  # noqa: S101  # the view gives it
        if not email or not password:
            return super().clean()
        throttle.require_sign_in(request, email)
        try:
            fields = super().clean()
        except ValidationError:
            throttle.count_failure(request, email)
            raise
        # Guesses that were sent all at once have passed the first look together.
        throttle.require_sign_in(request, email)
        return fields


class ChangeForm(PasswordChangeForm):
    """The password in use and a new one, twice. Guessing the one in use has the limits of signing in."""

    def __init__(self, request: HttpRequest, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, label_suffix="")
        self._request = request
        self.fields["old_password"].label = "Current password"
        _name_new(self)

    def clean_old_password(self) -> str:
        throttle.require_sign_in(self._request, self.user.email)
        try:
            return str(super().clean_old_password())
        except ValidationError:
            throttle.count_failure(self._request, self.user.email)
            raise ValidationError("That is not your password.") from None


class NewPasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # takes none when the program runs
    """A new password, twice, for who has followed the link of a mail."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, label_suffix="")
        _name_new(self)


class ResetForm(PasswordResetForm):
    """The address that a reset mail goes to."""

    email = forms.EmailField(
        label="E-mail address",
        max_length=254,
        error_messages={"required": "Type the address that you sign in with."},
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, label_suffix="")


def _name_new(form: forms.Form) -> None:
    form.fields["new_password1"].label = "New password"
    form.fields[
        "new_password1"
    ].help_text = "At least 8 characters. Not your address, not a common password, not only digits."
    form.fields["new_password2"].label = "New password, again"
    form.fields["new_password2"].help_text = ""
