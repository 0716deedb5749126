"""The forms of the aliases page. They refuse what the API refuses."""

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any, TypeVar

from django import forms

from accounts.models import Account
from catalogue import quota, routing
from catalogue.listing import View, listed
from catalogue.model_ids import ALIAS_RULE, GLOBAL
from catalogue.models import WITH_ENDPOINT
from catalogue.routes import Route, Snapshot
from gateway.errors import ApiError, InvalidAliasName

from . import targets
from .models import Alias
from .serializers import alias_name
from .targets import Target

T = TypeVar("T")
Choice = tuple[str, str]
Group = tuple[str, list[Choice]]
NAME_RULE = f"{ALIAS_RULE[0].upper()}{ALIAS_RULE[1:]}."


class NameField(forms.CharField):
    """A bare name, in any case."""

    def __init__(self) -> None:
        super().__init__(
            label="Name",
            help_text=NAME_RULE,
            widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        )

    def clean(self, value: Any) -> str:
        try:
            return alias_name(super().clean(value))
        except InvalidAliasName:
            raise forms.ValidationError(f"An alias name has {ALIAS_RULE}.") from None


class TargetField(forms.CharField):
    """A route, picked from those that can serve now; checked like a target of the API."""

    def __init__(self, account: Account, snapshot: Snapshot, today: date, *, current: str = "") -> None:
        groups: list[Any] = list(_choices(snapshot, today, account.currency))
        known = {choice for _, choices in groups for choice, _ in choices}
        empty = [("", "Choose a route")] if not current else []
        gone = [(current, f"{current} (not available now)")] if current and current not in known else []
        super().__init__(label="Target", initial=current, widget=forms.Select(choices=[*empty, *gone, *groups]))
        self._account, self._snapshot, self._today = account, snapshot, today

    def clean(self, value: Any) -> Target:
        target = _told(lambda: targets.from_id(super(TargetField, self).clean(value)))
        _told(lambda: targets.require_routable(target, self._snapshot, self._today, self._account.currency))
        return target


class CreateForm(forms.Form):
    """A name and its target."""

    name = NameField()

    def __init__(self, data: Any, account: Account, snapshot: Snapshot, today: date) -> None:
        super().__init__(data, auto_id="create-%s", label_suffix="")
        self.fields["target"] = TargetField(account, snapshot, today)


class RenameForm(forms.Form):
    """A new name."""

    name = NameField()

    def __init__(self, data: Any, alias: Alias) -> None:
        super().__init__(data, auto_id="rename-%s", label_suffix="", initial={"name": alias.name})


class RepointForm(forms.Form):
    """A new target."""

    def __init__(self, data: Any, alias: Alias, snapshot: Snapshot, today: date) -> None:
        super().__init__(data, auto_id="repoint-%s", label_suffix="")
        self.fields["target"] = TargetField(alias.account, snapshot, today, current=alias.target)


def _told(act: Callable[[], T]) -> T:
    """What it returns; what it refuses becomes a form's complaint."""
    try:
        return act()
    except ApiError as error:
        raise forms.ValidationError(error.message) from None


def _choices(snapshot: Snapshot, today: date, currency: str) -> list[Group]:
    """4-part ids and labels of every route that could serve a request now, by the name of their provider."""
    found: dict[str, Group] = {}
    for route in _routes(snapshot, today, currency):
        _, choices = found.setdefault(route.upstream.slug, (route.upstream.name, []))
        choices.append((route.id, _label(route)))
    return list(found.values())


def _routes(snapshot: Snapshot, today: date, currency: str) -> Iterator[Route]:
    view = View(today, held=quota.held(snapshot.with_quota, today))
    for _, routes in listed(snapshot, view):
        yield from (route for route in routes if _serves(snapshot, route, currency))


def _serves(snapshot: Snapshot, route: Route, currency: str) -> bool:
    try:
        routing.require_modality(route, WITH_ENDPOINT, "any endpoint")
        routing.require_price(snapshot, route, currency)
    except ApiError:
        return False
    return True


def _label(route: Route) -> str:
    place = "worldwide" if route.locode == GLOBAL else route.place.name if route.place else route.locode
    return f"{route.id} ({place})"
