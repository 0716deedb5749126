"""Gives advice on failed requests, from `advice.yaml`."""

from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML

from billing.models import RequestFailure
from gateway.observing.request_events import Outcome


class FailureAdvice(NamedTuple):
    """Explains a failure: its cause, and what to do, on which page of the dashboard (the name of its address)."""

    why: str
    what_to_do: str
    page: str = ""
    if_quoted: str = ""  # is added if the provider had answered

    @property
    def page_title(self) -> str:
        return PAGE_TITLES[self.page]


PAGE_TITLES = {
    "credit": "Billing",
    "keys": "API keys",
    "policies": "Policies",
    "models": "Models",
    "aliases": "Aliases",
}
_WORDS = YAML(typ="safe", pure=True).load(Path(__file__).with_suffix(".yaml"))
BY_CODE = {code: FailureAdvice(**words) for code, words in _WORDS.items()}
OF_THE_PROVIDER, LEFT = BY_CODE.pop("of_the_provider"), BY_CODE.pop("client_left")


def explained(failure: RequestFailure) -> FailureAdvice:
    """Returns the cause and remedy of a failure."""
    if failure.outcome == Outcome.CLIENT_LEFT:
        return LEFT
    return BY_CODE.get(failure.code, OF_THE_PROVIDER)
