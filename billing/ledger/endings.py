"""What each way to end means for the bill, the record, the provider's status, the client's stream, and its reader."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from ..models import Generation

Ending = Generation.Ending


class Closing(Enum):
    """How a stream closes."""

    FINISH = auto()  # the finish chunk with usage and metadata, then `[DONE]`
    EMPTY_CHUNK = auto()  # an empty chunk with usage and metadata, then `[DONE]`
    ERROR = auto()  # an error frame, without `[DONE]`
    NOTHING = auto()  # nobody is there to read it


class EndingRule(NamedTuple):
    """One row of the table. `text` is a sentence for the page of a record, `uncharged_text` for one without a cost."""

    closing: Closing
    text: str
    is_billed: bool = True
    is_interrupted: bool = False
    is_provider_failure: bool = False
    uncharged_text: str = ""


def _cut(closing: Closing, what_happened: str, *, is_provider_failure: bool = False) -> EndingRule:
    return EndingRule(
        closing,
        f"{what_happened}; what was delivered until then was charged.",
        is_interrupted=True,
        is_provider_failure=is_provider_failure,
        uncharged_text=f"{what_happened}; nothing was charged." if is_provider_failure else "",
    )


UNRESOLVABLE = "The provider's token counts contradict each other, so the cost is unknown. Nothing was charged."
ENDINGS: Mapping[str, EndingRule] = {
    Ending.FINISHED: EndingRule(Closing.FINISH, "Completed."),
    Ending.STALLED: _cut(
        Closing.EMPTY_CHUNK, "The provider stopped responding or took too long", is_provider_failure=True
    ),
    Ending.UPSTREAM_BROKE: _cut(Closing.ERROR, "Provider error (stream cut)", is_provider_failure=True),
    Ending.CLIENT_LEFT: _cut(Closing.NOTHING, "The client disconnected before the end"),
    Ending.WORKER_STOPPED: _cut(Closing.ERROR, "The gateway was stopped before the end"),
    Ending.COST_UNRESOLVABLE: EndingRule(Closing.ERROR, UNRESOLVABLE, is_billed=False),
}
# What is recorded of these has the same counts, whether the operator bills what a provider breaks or not.
PROVIDER_FAILURES = frozenset(ending for ending, rule in ENDINGS.items() if rule.is_provider_failure)
