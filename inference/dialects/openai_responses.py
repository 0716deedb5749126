"""Decodes streams of the Responses API (`/responses`)."""

from collections.abc import Collection
from typing import Any

from catalogue.pricing import Usage

from ..deltas import NO_CHOICE, Delta, FinishDelta, Note, OtherDelta, StreamEnd, TextDelta, UsageReport
from ..words import object_of
from .base import NOTHING, StreamDecoder, check_object
from .errors import ReportedError, report_of
from .openai_usage import usage_of

ENDS_OF_A_RESPONSE = ("response.completed", "response.incomplete", "response.done")


class ResponseDecoder(StreamDecoder):
    """See `base.StreamDecoder`. Events go on unchanged; the last one has the usage."""

    __slots__ = ("_total_includes",)

    def __init__(self, total_includes: Collection[str] = NOTHING) -> None:
        super().__init__()
        self._total_includes = total_includes

    def read(self, event: dict[str, Any], data: bytes, out: list[Delta | Note]) -> None:
        """See `base.StreamDecoder`."""
        kind = event.get("type")
        if kind == "response.failed":
            response = object_of(event.get("response"))
            if response.get("usage") is not None:
                out.append(UsageReport(response["usage"]))
            raise ReportedError(report_of({"error": response.get("error")}))
        check_object(event, data)
        if not isinstance(kind, str) or not kind.startswith("response."):
            return
        words = event.get("delta") if kind.endswith(".delta") else None
        if words and isinstance(words, str):
            out.append(TextDelta(event, NO_CHOICE, kind, words))
        elif kind in ENDS_OF_A_RESPONSE:
            out.append((OtherDelta if kind == "response.done" else FinishDelta)(event, NO_CHOICE))
            if (usage := object_of(event.get("response")).get("usage")) is not None:
                out.append(UsageReport(usage))
            out.append(StreamEnd())
        else:
            out.append(OtherDelta(event, NO_CHOICE))

    def counted(self, reported: Any) -> tuple[Usage | None, Usage | None]:
        """See `base.StreamDecoder`."""
        return usage_of(reported, self._total_includes), None
