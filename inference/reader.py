"""Reading a streamed answer: bytes to normalised chunks, with the usage, the output and the end noticed on the way."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson

from billing.models import IMPLAUSIBLE_USAGE, MALFORMED_EVENT, Generation
from catalogue.pricing import ContradictoryUsage, Usage
from gateway.fastpath.faults import DeadlineExpired, MalformedReply, UpstreamFault
from gateway.fastpath.http_client import UpstreamCall

from . import sse
from .chunks import NormalisedChunk, Normaliser
from .dialects.base import Event, StreamDecoder
from .dialects.openai import measured_units_in
from .generation import Ending, Outcome
from .sse import LearnedSurroundings, PlainChunks


class StreamReader:
    """One streamed answer as it comes in.

    `advance` reads once and adds to `pending`; `ending` is set once the answer has ended well or badly. What ends it
    otherwise is raised, after everything before it has been added. One event that cannot be read is skipped and
    flagged; a second one right behind it ends the answer.

    `is_implausible` is asked of each usage, with the bytes of the output until then (`serving.is_implausible`).
    """

    def __init__(
        self,
        upstream: UpstreamCall,
        decoder: StreamDecoder,
        normaliser: Normaliser,
        is_implausible: Callable[[Usage, int], bool],
    ) -> None:
        self.normaliser = normaliser
        self.pending: list[NormalisedChunk | PlainChunks] = []
        self.usage: Usage | None = None
        self.prompt_usage: Usage | None = None  # the prompt's part, where a dialect knows it from the start
        self.reported: Any = None  # what `usage` was read from, else all that the upstream said of it
        self.measured_units: int | None = None  # energy in 10^-10 Wh
        self.text_bytes = 0
        self.first_output_at: float | None = None  # monotonic clock
        self.ending: Generation.Ending | None = None
        self._upstream, self._decoder, self._is_implausible = upstream, decoder, is_implausible
        self._parser = sse.SseParser()
        self._learned = LearnedSurroundings(normaliser.only_text)
        self._has_progressed = False
        self._counted_bytes = 0  # of text, when the last usage came
        self._has_first_event = False
        self._malformed: MalformedReply | None = None  # of the newest event, where it could not be read
        self._flags: tuple[str, ...] = ()

    def take(self) -> list[NormalisedChunk | PlainChunks]:
        """What has come since the last time."""
        pending, self.pending = self.pending, []
        return pending

    def outcome(self, ending: Generation.Ending, *, text_bytes: int | None = None) -> Outcome:
        """What became of the answer, as far as it was read, or delivered (`text_bytes`)."""
        delivered = self.text_bytes if text_bytes is None else text_bytes
        uncounted = 0 if self.usage is None else delivered - self._counted_bytes
        return Outcome(
            ending,
            self.usage,
            self.prompt_usage,
            delivered,
            self.first_output_at,
            uncounted,
            reported=self.reported,
            flags=self._flags,
            measured_units=self._measured_units,
        )

    @property
    def _measured_units(self) -> int | None:
        """The energy that the upstream measured: said in a chunk, or else in a comment of the stream."""
        if self.measured_units is None and self._parser.energy:
            with suppress(orjson.JSONDecodeError):
                return measured_units_in({"energy": orjson.loads(self._parser.energy)})
        return self.measured_units

    def advance(self) -> None:
        """Reads once. An end that comes after every choice has finished is a good one, whatever it looks like.

        Raises UpstreamFault (DeadlineExpired among them), ContradictoryUsage, and what the call was aborted with.
        """
        try:
            block = self._upstream.read()
            events = self._parser.feed(block) if block else self._parser.finish()
            self._take_plain()
            for data in events:
                if self._is_last(data):
                    for normalised in self.normaliser.finish_open(is_counted=self.usage is not None):
                        self._add(normalised)
                    self._end()
                    return
                self._take_plain()
            if self._has_progressed:
                self._has_progressed = False
                self._upstream.deadlines.progressed()
            if not block:
                self._end()
            elif self.normaliser.all_finished and not self._upstream.deadlines.is_after_finish:
                self._upstream.deadlines.finished()
        except DeadlineExpired:
            if not self._upstream.deadlines.is_after_finish:
                raise
            self.ending = Ending.FINISHED
        except UpstreamFault:
            if not self.normaliser.all_finished:
                raise
            self.ending = Ending.FINISHED

    def _take_plain(self) -> None:
        plain = self._learned.take(self._parser)
        if plain is not None:
            self._malformed, self._has_progressed = None, True
            self.text_bytes += plain.text_bytes
            self.pending.append(plain)

    def _end(self) -> None:
        if not self.normaliser.is_complete and self._malformed is not None:
            raise self._malformed
        self.ending = Ending.FINISHED if self.normaliser.is_complete else Ending.UPSTREAM_BROKE

    def _is_last(self, data: bytes) -> bool:
        """Takes one event in. True for the dialect's own end of the stream."""
        try:
            event = self._decoder.decode(data)
        except MalformedReply as fault:
            if self._malformed is not None:
                raise
            self._malformed, self._flags = fault, (MALFORMED_EVENT,)
            return False
        except ContradictoryUsage as error:
            self.reported = error.reported
            raise
        if event.error is not None and not self.normaliser.all_finished:
            raise event.error
        self._malformed = None
        if event.is_malformed:
            self._flags = (MALFORMED_EVENT,)
        normalised = None if event.chunk is None else self.normaliser.normalise(event.chunk)
        if event.reported is not None:
            self._take_usage(event, 0 if normalised is None else normalised.text_bytes)
        if event.measured_units is not None:
            self.measured_units = event.measured_units
        if normalised is not None:
            self._add(normalised)
        if event.chunk is not None and (normalised is None or normalised.finishes):
            self._learned.forget()
        elif normalised is not None and event.reported is None:
            self._learned.learn(data, self._parser.raw, normalised)
        if event.usage is not None:
            self.usage, self._counted_bytes = event.usage, self.text_bytes
        # The first event of any kind meets the first-byte budget; after it only what counts resets the idle one.
        if normalised is not None or event.usage is not None or not self._has_first_event:
            self._has_first_event = self._has_progressed = True
        return event.is_last or event.error is not None

    def _take_usage(self, event: Event, more_bytes: int) -> None:
        """Takes what an event says of usage, unless it is implausible; its own text is not added yet."""
        counted = event.usage or event.prompt_usage
        if counted is not None and self._is_implausible(counted, self.text_bytes + more_bytes):
            self.reported, self._flags = event.reported, (*self._flags, IMPLAUSIBLE_USAGE)
            raise ContradictoryUsage("more than can have been asked for or delivered")
        self.prompt_usage = event.prompt_usage or self.prompt_usage
        if event.usage is not None or self.usage is None:
            self.reported = event.reported

    def _add(self, normalised: NormalisedChunk) -> None:
        if normalised.has_output or normalised.finishes:
            self.first_output_at = self.first_output_at or time.monotonic()
        self.text_bytes += normalised.text_bytes
        self.pending.append(normalised)
