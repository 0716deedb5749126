"""What the Models page may be asked."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django import forms

from .browse import AUTO_NAME, Search
from .listing import View
from .model_ids import AUTO
from .models import Modality

JURISDICTIONS = [
    ("", "Anywhere"),
    ("eu-hosted", "EU-hosted"),
    ("eu-sovereign", "EU-sovereign"),
    ("cloud-act-free", "Beyond US legal reach"),
]


class BrowseForm(forms.Form):
    """Search and filters; each may be left out. `everything` is for staff alone."""

    q = forms.CharField(label="Search", required=False, max_length=200)
    jurisdiction = forms.ChoiceField(required=False, choices=JURISDICTIONS)
    modality = forms.ChoiceField(required=False, choices=[("", "Any"), *Modality.choices])
    provider = forms.ChoiceField(required=False)
    everything = forms.BooleanField(label="Also what is not served", required=False)

    def __init__(self, data: Mapping[str, Any], providers: Mapping[str, str], *, staff: bool) -> None:
        super().__init__(data, label_suffix="")
        self.fields["q"].widget = forms.TextInput(attrs={"type": "search", "placeholder": "Name, id or provider"})
        choices = [("", "Any"), (AUTO, AUTO_NAME), *providers.items()]
        self.fields["provider"] = forms.ChoiceField(required=False, choices=choices)
        if not staff:
            del self.fields["everything"]

    @property
    def search(self) -> Search:
        """What a valid form asks for."""
        wanted = self.cleaned_data
        words = tuple(wanted["q"].lower().split())
        return Search(words, wanted["provider"], everything=wanted.get("everything", False))

    def within(self, view: View) -> View:
        """The view, narrowed to the jurisdiction and the modality that a valid form asks for."""
        wanted = self.cleaned_data
        return replace(view, jurisdiction=wanted["jurisdiction"] or None, modality=wanted["modality"] or None)

    @property
    def is_narrowed(self) -> bool:
        """Whether anything is filtered at all."""
        return any(self.cleaned_data[name] for name in ("q", "jurisdiction", "modality", "provider"))
