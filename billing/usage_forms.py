"""The form that chooses the days of the usage pages."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from django import forms

from .usage_statistics import Days

MOST_DAYS = 366
USUAL_DAYS = 30
NOTHING_BEFORE = date(2000, 1, 1)  # no record is that old


class DaysForm(forms.Form):
    """The first and the last of at most 366 UTC days; one of them is enough. Days to come are left out."""

    since = forms.DateField(label="From", required=False, input_formats=["%Y-%m-%d"])
    until = forms.DateField(label="Until and including", required=False, input_formats=["%Y-%m-%d"])

    def __init__(self, data: Mapping[str, Any] | None, *, today: date) -> None:
        super().__init__(data, label_suffix="")
        self.today = today
        for field in self.fields.values():
            field.widget = forms.DateInput({"type": "date", "max": today.isoformat()}, format="%Y-%m-%d")
            field.error_messages["invalid"] = "Write a day as 2026-10-30."

    def show(self, days: Days) -> None:
        """Fills a form that was not sent."""
        self.initial = {"since": days.first, "until": days.last}

    @property
    def days(self) -> Days:
        """Of a valid form."""
        return Days(self.cleaned_data["since"], self.cleaned_data["until"])

    def clean(self) -> dict[str, Any]:
        """Fills in the bound that was left empty."""
        since, until = self.cleaned_data.get("since"), self.cleaned_data.get("until")
        if self.errors:
            return self.cleaned_data
        last = min(until or self.today, self.today)
        if last < NOTHING_BEFORE:
            self.add_error("until", f"Nothing is older than {NOTHING_BEFORE}.")
            return self.cleaned_data
        first = since or last - timedelta(days=USUAL_DAYS - 1)
        self._check(first, last)
        return {"since": first, "until": last}

    def _check(self, first: date, last: date) -> None:
        earliest = last - timedelta(days=MOST_DAYS - 1)
        if first > self.today:
            self.add_error("since", f"That day is to come: today is {self.today}, in UTC.")
        elif first > last:
            self.add_error("since", f"The days begin after they end, on {last}.")
        elif first < earliest:
            self.add_error("since", f"At most {MOST_DAYS} days are shown at once: {earliest} is the earliest here.")
