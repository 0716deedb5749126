"""Defines what each ending of a request means for its bill, its record, the provider's status and the client.

`is_billed` is not the last word on the bill: with GATEWAY_BILL_BROKEN_STREAMS=false, inference/stream.py waives the
bill if the ending is the provider's failure. A stream that exceeds the overall timeout is billed nevertheless.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from ..models import Generation

Ending = Generation.Ending


class StreamClosing(Enum):
    """Names the ways in which a stream closes, in terms of chat; other APIs close with their own events."""

    FINISH = auto()  # the finish chunk with usage and metadata, then `[DONE]`
    EMPTY_CHUNK = auto()  # an empty chunk with usage and metadata, then `[DONE]`
    ERROR = auto()  # an error frame, without `[DONE]`
    NOTHING = auto()  # the client has left


class EndingRule(NamedTuple):
    """Holds one row of ENDINGS. A record's page shows `text`, or `uncharged_text` if the record has no cost."""

    closing: StreamClosing
    text: str
    is_billed: bool = True
    is_interrupted: bool = False
    is_provider_failure: bool = False
    uncharged_text: str = ""


def _cut(closing: StreamClosing, what_happened: str, *, is_provider_failure: bool = False) -> EndingRule:
    return EndingRule(
        closing,
        f"{what_happened}; what was delivered until then was charged.",
        is_interrupted=True,
        is_provider_failure=is_provider_failure,
        uncharged_text=f"{what_happened}; nothing was charged." if is_provider_failure else "",
    )


UNRESOLVABLE = "The provider's token counts contradict each other, so the cost is unknown. Nothing was charged."
ENDINGS: Mapping[str, EndingRule] = {
    Ending.FINISHED: EndingRule(StreamClosing.FINISH, "Completed."),
    Ending.STALLED: _cut(
        StreamClosing.EMPTY_CHUNK, "The provider stopped responding or took too long", is_provider_failure=True
    ),
    Ending.UPSTREAM_BROKE: _cut(StreamClosing.ERROR, "Provider error (stream cut)", is_provider_failure=True),
    Ending.CLIENT_LEFT: _cut(StreamClosing.NOTHING, "The client disconnected before the end"),
    Ending.WORKER_STOPPED: _cut(StreamClosing.ERROR, "The gateway was stopped before the end"),
    Ending.COST_UNRESOLVABLE: EndingRule(StreamClosing.ERROR, UNRESOLVABLE, is_billed=False),
}
# Endings that are the provider's fault. Their records have token counts whether or not the operator bills them.
PROVIDER_FAILURES = frozenset(ending for ending, rule in ENDINGS.items() if rule.is_provider_failure)
