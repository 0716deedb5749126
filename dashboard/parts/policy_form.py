"""Asks for a policy, field by field. Only `catalogue.policy_form` checks it, as it does for commands."""

import re
from collections.abc import Mapping
from typing import Any

from django import forms

from accounts.policies import ALERTS
from catalogue.models import PRICES
from catalogue.policy_form import PERIODS, CheckedPolicy, checked_policy
from catalogue.routing.routes import Snapshot
from gateway.errors import InvalidRequest

from .policy_words import AUTO_LABELS, JURISDICTIONS, LABELS, OBJECTIVES, PRICE_LABELS, TRANSFERS, budgets_of

AS_TYPED = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
FLAGS = ("zero_data_retention", "confidential")
NUMBERS = ("rpm", "tpm")
LINES = ("models", "locodes")
IN_A_ROW = ("storage", "alerts")
GROUPS = ("providers", "jurisdictions", "transfer")
LISTS = (*LINES, *IN_A_ROW, *GROUPS)
AUTO_FLAGS = {"": "As the gateway is set", "true": "Yes", "false": "No"}
MEANWHILE = (
    "The policy has been changed since this page was opened. Nothing was saved: open the page again and repeat your "
    "change."
)


class CheckboxGroup(forms.CheckboxSelectMultiple):
    """Shows choices as checkboxes. A link to the group, as of an error, leads to the first."""

    def id_for_label(self, id_: str, index: Any = None) -> str:
        return super().id_for_label(id_, index or "0")


class AnyOf(forms.MultipleChoiceField):
    """Offers choices, and leaves it to the check of policies to refuse others."""

    def valid_value(self, value: Any) -> bool:
        return True


class OneOf(forms.ChoiceField):
    """Offers choices, and leaves it to the check of policies to refuse others."""

    def valid_value(self, value: Any) -> bool:
        return True


def _text(label: str, help_text: str = "", **attrs: Any) -> forms.CharField:
    widget = forms.TextInput(attrs=AS_TYPED | attrs)
    return forms.CharField(label=label, help_text=help_text, required=False, widget=widget)


def _amount(label: str, help_text: str = "") -> forms.CharField:
    return _text(label, help_text, inputmode="decimal")


def _lines(name: str, help_text: str) -> forms.CharField:
    widget = forms.Textarea(attrs=AS_TYPED | {"rows": 3})
    return forms.CharField(label=LABELS[name], help_text=help_text, required=False, widget=widget)


def _group(name: str, choices: Mapping[str, str], help_text: str = "") -> AnyOf:
    return AnyOf(
        label=LABELS[name], help_text=help_text, required=False, widget=CheckboxGroup, choices=[*choices.items()]
    )


def _choice(name: str, choices: Mapping[str, str]) -> OneOf:
    return OneOf(label=AUTO_LABELS[name], required=False, choices=[*choices.items()])


def _flag(label: str, help_text: str = "") -> forms.BooleanField:
    return forms.BooleanField(label=label, help_text=help_text, required=False)


class PolicyForm(forms.Form):
    """Asks for all rules of a policy. An empty field is no rule; `{list}_nothing` is a list that allows nothing."""

    # The policy's `changed_at` as the page showed it, so that nobody overwrites what they have not seen.
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    models = _lines(
        "models",
        "One id or pattern per line, such as scaleway/openai/gpt-oss-120b or auto/*. * stands for any characters.",
    )
    providers = _group("providers", {})
    jurisdictions = _group("jurisdictions", JURISDICTIONS, "A route must be in all that are ticked.")
    locodes = _lines(
        "locodes", "One place per line, such as FRPAR. FR* stands for all places in France, global for global routes."
    )
    zero_data_retention = _flag(LABELS["zero_data_retention"], "A provider of which it is unknown is not used.")
    storage = _text(
        LABELS["storage"], "Codes of two capital letters, separated by commas. EU stands for all its members."
    )
    transfer = _group("transfer", TRANSFERS, "A route must have one that is ticked.")
    confidential = _flag(LABELS["confidential"], "In a trusted environment, or encrypted from end to end.")
    max_cost = _amount("")
    rpm = _text(LABELS["rpm"], inputmode="numeric")
    tpm = _text(LABELS["tpm"], inputmode="numeric")
    alerts = _text(
        LABELS["alerts"],
        "Percentages of a budget, separated by commas. "
        f"Leave empty for {', '.join(map(str, ALERTS[:-1]))} and {ALERTS[-1]}.",
    )
    auto_objective = _choice("objective", {"": AUTO_FLAGS[""], **OBJECTIVES})
    auto_failover = _choice("failover", AUTO_FLAGS)
    auto_skip_down = _choice("skip_down", AUTO_FLAGS)

    def __init__(
        self, data: Any, stored: Mapping[str, Any], catalogue: Snapshot, *, currency: str, seen: str = ""
    ) -> None:
        """Shows `stored` rules, and in place of them `data` if it is not None."""
        super().__init__(data, label_suffix="", initial={"seen": seen, **_initial(stored)})
        self._stored, self._catalogue, self._seen = stored, catalogue, seen
        for name in LISTS:
            label = "Tell nobody" if name == "alerts" else "Allow nothing"
            self.fields[f"{name}_nothing"] = _flag(label)
        for period in PERIODS:
            label = "In total" if period == "total" else f"Per {period}"
            self.fields[f"budget_{period}"] = _amount(f"{label} ({currency})")
        for name in PRICES:
            self.fields[f"max_price_{name}"] = _amount(f"{PRICE_LABELS[name]} ({currency})")
        self.fields["max_cost"].label = f"{LABELS['max_cost']} ({currency})"
        providers = sorted((upstream.name, slug) for slug, upstream in catalogue.upstreams.items())
        self._offer("providers", {slug: name for name, slug in providers})
        for name in ("jurisdictions", "transfer"):
            self._offer(name, dict(self.fields[name].choices))  # type: ignore[attr-defined]

    def _offer(self, name: str, choices: dict[str, str]) -> None:
        # What is stored stays a choice, so that saving another field does not remove it unseen.
        gone = {each: f"{each} (not in the catalogue)" for each in self._stored.get(name) or () if each not in choices}
        self.fields[name].choices = [*(choices | gone).items()]  # type: ignore[attr-defined]

    def checked(self) -> CheckedPolicy | None:
        """Returns the policy as it is to be stored; None if the form has errors, which it then shows."""
        if self.is_valid():
            try:
                return checked_policy(self._catalogue, self.rules)
            except InvalidRequest as error:
                self._show(error)
        return None

    @property
    def budgets(self) -> list[forms.BoundField]:
        return [self[f"budget_{period}"] for period in PERIODS]

    @property
    def prices(self) -> list[forms.BoundField]:
        return [self[f"max_price_{name}"] for name in PRICES]

    @property
    def has_prices(self) -> bool:
        """Tells whether the page shows the prices unfolded."""
        return any(field.value() or field.errors for field in self.prices)

    @property
    def rules(self) -> dict[str, Any]:
        """Returns the policy that a valid form asks for, unchecked."""
        sent = self.cleaned_data
        rules: dict[str, Any] = {name: self._list(name) for name in LISTS if sent[name] or sent[f"{name}_nothing"]}
        rules |= {name: True for name in FLAGS if sent[name]}
        rules |= {name: _whole(sent[name]) for name in NUMBERS if sent[name]}
        if sent["max_cost"]:
            rules["max_cost"] = sent["max_cost"]
        prices = {name: sent[f"max_price_{name}"] for name in PRICES}
        auto = {name: sent[f"auto_{name}"] for name in AUTO_LABELS}
        objects: dict[str, Any] = {
            "max_price": {name: price for name, price in prices.items() if price},
            "budget": [{"amount": sent[f"budget_{period}"], "period": period} for period in self._periods],
            "auto": {name: {"true": True, "false": False}.get(each, each) for name, each in auto.items() if each},
        }
        rules |= {name: value for name, value in objects.items() if value}
        # `false` and a list of no budgets have no field of their own: they are kept as no rule would be.
        kept: dict[str, Any] = {
            name: value for name, value in self._stored.items() if name not in rules and value is False
        }
        if self._stored.get("budget") == [] and "budget" not in rules:
            kept["budget"] = []
        return rules | kept

    def clean(self) -> dict[str, Any]:
        sent = self.cleaned_data
        for name in LISTS:
            if sent.get(name) and sent.get(f"{name}_nothing"):
                what = str(self.fields[f"{name}_nothing"].label)
                self.add_error(name, f"Leave this empty, or do not tick “{what}”.")
        if self.is_bound and "seen" in self.data and sent.get("seen", "") != self._seen:
            self.add_error(None, MEANWHILE)
        return sent

    def clean_models(self) -> list[str]:
        return _split(self.cleaned_data["models"], r"\n")

    def clean_locodes(self) -> list[str]:
        return _split(self.cleaned_data["locodes"], r"[\n,]")

    def clean_storage(self) -> list[str]:
        return _split(self.cleaned_data["storage"], r"[\s,]")

    def clean_alerts(self) -> list[Any]:
        return [_whole(each) for each in _split(self.cleaned_data["alerts"].replace("%", " "), r"[\s,]")]

    def _list(self, name: str) -> list[Any]:
        chosen: list[Any] = self.cleaned_data[name]
        stored = self._stored.get(name)
        # Checkboxes have an order of their own.
        return stored if name in GROUPS and stored is not None and {*stored} == {*chosen} else chosen

    @property
    def _periods(self) -> list[str]:
        return [period for period in PERIODS if self.cleaned_data[f"budget_{period}"]]

    def _show(self, error: InvalidRequest) -> None:
        """Puts the error of the check next to the field that it names."""
        name, position, part = re.fullmatch(r"(\w*)(?:\[(\d+)\])?(?:\.(\w+))?.*", error.param or "", re.DOTALL).groups()  # type: ignore[union-attr]
        rule = error.rule or error.message
        shown = rule[:1].upper() + rule[1:]
        if name == "budget":
            field = f"budget_{self._periods[int(position or 0)]}"
        elif part is not None:
            field = f"{name}_{part}"
        else:
            field = name
            if position is not None:
                entry = repr(self.cleaned_data[name][int(position)])
                shown = shown if entry in rule else f"{entry} {rule}"
        self.add_error(field if field in self.fields else None, shown)


def _initial(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the fields show for stored rules."""
    shown = {name: stored[name] for name in (*FLAGS, *NUMBERS, *GROUPS, "max_cost") if name in stored}
    shown |= {name: "\n".join(stored.get(name) or ()) for name in LINES}
    shown |= {name: ", ".join(map(str, stored.get(name) or ())) for name in IN_A_ROW}
    shown |= {f"{name}_nothing": stored.get(name) == [] for name in LISTS}
    shown |= {f"budget_{each['period']}": each["amount"] for each in budgets_of(stored)}
    shown |= {f"max_price_{name}": price for name, price in stored.get("max_price", {}).items()}
    for name, value in stored.get("auto", {}).items():
        shown[f"auto_{name}"] = str(value).lower()
    return shown


def _split(text: str, separator: str) -> list[str]:
    return [each for part in re.split(separator, text) if (each := part.strip())]


def _whole(text: str) -> Any:
    """Returns a whole number; any other text as it is, for the check to refuse."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text
