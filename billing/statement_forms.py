"""The form that a statement is asked for with. Its fields stand in the download's address too."""

from collections.abc import Mapping
from typing import Any

from django import forms

from .periods import InvalidPeriod, Month, Period


class StatementForm(forms.Form):
    """The first and the last day, which are UTC's, or moments as `Period` takes them. `month` is what is left out."""

    since = forms.CharField(label="From", widget=forms.DateInput({"type": "date"}))
    until = forms.CharField(label="Until and including", widget=forms.DateInput({"type": "date"}))

    def __init__(self, data: Mapping[str, Any] | None, month: Month) -> None:
        fields = month._asdict()
        super().__init__(None if data is None else fields | {**data}, initial=fields, label_suffix="")

    @property
    def period(self) -> Period:
        """Of a valid form."""
        return Period.between(self.cleaned_data["since"], self.cleaned_data["until"])

    def clean_since(self) -> str:
        return _bound(self.cleaned_data["since"])

    def clean_until(self) -> str:
        return _bound(self.cleaned_data["until"])

    def clean(self) -> None:
        if self.errors:
            return
        try:
            Period.between(**self.cleaned_data)
        except InvalidPeriod:
            self.add_error("since", f"The days begin after they end, on {self.cleaned_data['until']}.")


def _bound(text: str) -> str:
    """It could be either: whether it fits the other one is seen later."""
    try:
        Period.between("0001-01-01", text)
    except InvalidPeriod:
        raise forms.ValidationError("Write a day as 2026-10-30.") from None
    return text
