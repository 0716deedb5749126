"""Reads a streamed answer: turns bytes into normalised deltas, and notes the usage, the first output and the end."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import orjson

from billing.models import IMPLAUSIBLE_USAGE, MALFORMED_EVENT, Generation
from catalogue.pricing import ContradictoryUsage, Usage
from gateway.fastpath.faults import DeadlineExpired, UpstreamFault
from gateway.fastpath.http_client import Deadlines

from .chunks import Normaliser
from .deltas import Delta
from .dialects.base import StreamDecoder
from .dialects.openai import measured_units_in
from .generation import Delivery, Ending
from .sse import SseParser
from .text_joiner import TextJoiner


class ByteSource(Protocol):
    """Provides the bytes of a stream: in production an `UpstreamCall`."""

    deadlines: Deadlines

    def read(self) -> bytes:
        """Returns the next bytes as soon as there are any, and an empty block at the end."""


class StreamReader:
    """Reads one streamed answer while it arrives.

    `advance` reads once and adds to `pending`. `ending` is set once the answer has ended, well or badly; a fault that
    ends it is raised instead, after everything before it has been added. One event that cannot be read is skipped and
    flagged; a second one directly after it ends the answer.

    `is_implausible` (`serving.is_implausible`) judges each usage, given the bytes of output until then. `joins_texts`
    is set if the client will not see the single chunks.
    """

    def __init__(
        self,
        upstream: ByteSource,
        decoder: StreamDecoder,
        normaliser: Normaliser,
        is_implausible: Callable[[Usage, int], bool],
        *,
        joins_texts: bool = False,
    ) -> None:
        self.normaliser = normaliser
        self.pending: list[Delta] = []
        self.usage: Usage | None = None
        self.prompt_usage: Usage | None = None  # the prompt's part, if the dialect knows it from the start
        self.reported: Any = None  # what `usage` was read from; a report that cannot be counted if there is no other
        self.first_output_at: float | None = None  # monotonic clock
        self.ending: Generation.Ending | None = None
        self._upstream, self._decoder, self._is_implausible = upstream, decoder, is_implausible
        self._decode, self._take = decoder.decode, normaliser.take
        self._parser = SseParser()
        self._joined = TextJoiner(decoder.one_text).joined if joins_texts else None
        self._counted_bytes = 0  # bytes of text when the last usage came
        self._has_first_event = False
        self._is_unbelievable = False  # flagged in the record

    @property
    def text_bytes(self) -> int:
        """Returns the length of the output so far, in bytes of UTF-8."""
        return self.normaliser.text_bytes

    @property
    def is_counted(self) -> bool:
        """Tells whether the upstream has reported a usage since its last output."""
        return self.usage is not None and self._counted_bytes >= self.text_bytes

    def take(self) -> list[Delta]:
        """Returns the deltas that have come since the last call."""
        pending, self.pending = self.pending, []
        return pending

    def take_finishes(self) -> list[Delta]:
        """Returns the finishes of an answer that has ended. They are held until then, since an upstream may go on."""
        return [*self.normaliser.finishes()]

    def outcome(self, ending: Generation.Ending, *, text_bytes: int | None = None) -> Delivery:
        """Describes what became of the answer as far as it was read, or as far as `text_bytes` of it were delivered."""
        delivered = self.text_bytes if text_bytes is None else text_bytes
        normaliser = self.normaliser
        malformed = (MALFORMED_EVENT,) if normaliser.has_unreadable or normaliser.has_surplus else ()
        return Delivery(
            ending,
            self.usage,
            self.prompt_usage,
            delivered,
            self.first_output_at,
            0 if self.usage is None else delivered - self._counted_bytes,
            reported=self.reported,
            flags=(*malformed, IMPLAUSIBLE_USAGE) if self._is_unbelievable else malformed,
            measured_units=self._measured_units,
        )

    @property
    def _measured_units(self) -> int | None:
        """Returns the energy, in 10^-10 Wh, that the upstream reported in a chunk or in a comment of the stream."""
        if self.normaliser.measured_units is None and self._parser.energy:
            with suppress(orjson.JSONDecodeError):
                return measured_units_in({"energy": orjson.loads(self._parser.energy)})
        return self.normaliser.measured_units

    def advance(self) -> None:
        """Reads once. Once every choice has finished, any end of the stream is a good one.

        Raises UpstreamFault (DeadlineExpired among them), ContradictoryUsage, and the exception that aborted the call.
        """
        normaliser, deadlines = self.normaliser, self._upstream.deadlines
        before = len(self.pending)
        try:
            block = self._upstream.read()
            events = self._parser.feed(block) if block else self._parser.finish()
            if self._joined is not None:
                events = self._joined(events)
            try:
                others = events if normaliser.has_output else self._take_first(events)
                self._take(self._decode(others), self.pending)
            finally:
                if self.first_output_at is None:
                    self._note_output()
                is_counted = self._count() if normaliser.reported else False
            # Any first event ends the budget for the first byte, a comment does not. From then on only deltas and
            # usage reset the idle timeout.
            if len(self.pending) > before or is_counted or (events and not self._has_first_event):
                self._has_first_event = True
                deadlines.progressed()
            if normaliser.has_ended or not block:
                self._end()
            elif (all_finished := normaliser.all_finished) is not deadlines.is_after_finish:
                deadlines.finished(all_finished)
        except DeadlineExpired:
            if not deadlines.is_after_finish:
                raise
            self.ending = Ending.FINISHED
        except UpstreamFault:
            if not normaliser.all_finished:
                raise
            self.ending = Ending.FINISHED

    def _note_output(self) -> None:
        if self.first_output_at is None and self.normaliser.has_output:
            self.first_output_at = time.monotonic()

    def _take_first(self, events: list[bytes]) -> list[bytes]:
        """Takes in the events up to the first output, one by one, and returns the others.

        An event whose usage contradicts itself does not count as output.
        """
        normaliser, at = self.normaliser, 0
        while at < len(events) and not (normaliser.has_output or normaliser.has_ended):
            before, sent = normaliser.text_bytes, list[Delta]()
            try:
                self._take(self._decode(events[at : at + 1]), sent)
            finally:
                try:
                    if normaliser.reported:
                        self._count()
                except ContradictoryUsage:
                    normaliser.has_output, normaliser.text_bytes = False, before
                    raise
                self.pending += sent
            at += 1
        return [] if normaliser.has_ended else events[at:]

    def _count(self) -> bool:
        """Counts the newest usage of this read, which includes the earlier ones. Returns True if it is complete.

        Raises ContradictoryUsage.
        """
        normaliser = self.normaliser
        said, normaliser.reported = normaliser.reported, []
        if len(said) > 1 or self.reported is not None:
            newest, text_bytes = said[-1]
            earlier = [*(reported for reported, _ in said[-2::-1]), self.reported]
            said[-1] = self._decoder.completed(newest, earlier), text_bytes
        for reported, text_bytes in reversed(said):
            try:
                usage, prompt = self._decoder.counted(reported)
                counted = usage or prompt
                if counted is not None and self._is_implausible(counted, text_bytes):
                    self._is_unbelievable = True
                    raise ContradictoryUsage("more than can have been asked for or delivered")
            except ContradictoryUsage:
                self.reported = reported
                raise
            self.prompt_usage = prompt or self.prompt_usage
            if usage is not None or self.usage is None:
                self.reported = reported
            if usage is not None:
                self.usage, self._counted_bytes = usage, text_bytes
                return True
        return False

    def _end(self) -> None:
        """Ends the answer at the end of the body, or at the dialect's own end, by which open choices are finished."""
        if self.normaliser.has_ended:
            self.normaliser.finish_open(self.pending, is_counted=self.usage is not None)
            self._note_output()
        if not self.normaliser.is_complete and self._decoder.unreadable is not None:
            raise self._decoder.unreadable
        self.ending = Ending.FINISHED if self.normaliser.is_complete else Ending.UPSTREAM_BROKE
