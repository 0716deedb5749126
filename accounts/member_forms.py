"""The forms of the members' page and of an invitation."""

from typing import Any

from django import forms

from .models import Membership, User
from .password_forms import NewPasswordForm

ROLES = [(role.value, role.label.capitalize()) for role in (Membership.Role.MEMBER, Membership.Role.OWNER)]
ROLE_RULE = "Owners also invite and remove people; everything else is open to both."


class InviteForm(forms.Form):
    """An address and a role."""

    email = forms.EmailField(
        label="E-mail address",
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


class ChoosePasswordForm(NewPasswordForm):
    """A newcomer's first password, twice."""

    def __init__(self, user: User, data: Any) -> None:
        super().__init__(user, data)
        self.fields["new_password1"].label, self.fields["new_password2"].label = "Password", "Password again"
