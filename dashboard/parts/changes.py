"""Makes forms write only the changed fields: another tab or person may have changed the others meanwhile."""

from typing import Any

from django import forms


class ChangesForm(forms.Form):
    """Sends, along with each field, the value that it had when the page was shown."""

    def __init__(self, data: Any, initial: dict[str, Any], *, auto_id: str = "id_%s") -> None:
        super().__init__(data, auto_id=auto_id, label_suffix="", initial=initial)
        for field in self.fields.values():
            field.show_hidden_initial = True

    @property
    def changes(self) -> dict[str, Any]:
        """Returns the values that differ from those the page showed, or all if the client did not send those."""
        changed = self.changed_data
        return {
            name: value
            for name, value in self.cleaned_data.items()
            if name in changed or self.add_initial_prefix(name) not in self.data
        }
