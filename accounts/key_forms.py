"""The form of a new key. It refuses what `keys.issue` refuses, in the same words."""

from typing import Any

from django import forms

from . import keys
from .models import Account, ApiKey

EXPIRY_LABELS = {
    "7d": "7 days",
    "30d": "30 days",
    "90d": "90 days",
    "180d": "180 days",
    "1y": "1 year",
    "never": "Never",
}
AGAIN = (
    "If you have created it just now and reloaded the page: a key is shown once only. Delete it and create another if "
    "you did not copy it."
)


class CreateForm(forms.Form):
    """A name and how long the key is good for."""

    name = forms.CharField(
        label="Name",
        help_text="Where the key is used, such as a program or a machine.",
        error_messages={"required": keys.NAME_RULE},
        widget=forms.TextInput(attrs={"autocomplete": "off", "maxlength": keys.MAX_NAME_LENGTH, "spellcheck": "false"}),
    )
    expiry = forms.ChoiceField(
        label="Expiry",
        help_text="After that it stops working.",
        choices=[(lifetime, EXPIRY_LABELS[lifetime]) for lifetime in keys.LIFETIMES],
        initial=keys.DEFAULT_LIFETIME,
    )

    def __init__(self, data: Any = None) -> None:
        super().__init__(data, auto_id="create-%s", label_suffix="")

    def issue(self, account: Account) -> tuple[ApiKey, str] | None:
        """The new key with its token, which cannot be had again; None where the form has a fault, and says which."""
        if not self.is_valid():
            return None
        try:
            return keys.issue(account, name=self.cleaned_data["name"], lifetime=self.cleaned_data["expiry"])
        except keys.InvalidKeyName as error:
            self.add_error("name", str(error))
        except keys.KeyNameTaken as error:
            self.add_error("name", f"{error} {AGAIN}")
        return None
