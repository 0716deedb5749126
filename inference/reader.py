"""Reading a streamed answer: bytes to normalised chunks, with the usage, the output and the end noticed on the way."""

import time
from typing import Any

from billing.models import MALFORMED_EVENT, Generation
from catalogue.pricing import ContradictoryUsage, Usage

from . import sse
from .chunks import Chunks, Normalised
from .dialects.base import MalformedReply, StreamDecoder
from .plain_chunks import PlainChunk, PlainChunks
from .records import Ending, Outcome
from .upstream.client import UpstreamCall
from .upstream.deadlines import DeadlineExpired
from .upstream.faults import UpstreamFault


class StreamReader:
    """One streamed answer as it comes in.

    `advance` reads once and adds to `brought`; `ending` is set once the answer has ended well or badly. What ends it
    otherwise is raised, after everything before it has been added. One event that cannot be read is skipped and
    flagged; a second one right behind it ends the answer.
    """

    def __init__(self, upstream: UpstreamCall, decoder: StreamDecoder, chunks: Chunks) -> None:
        self.chunks = chunks
        self.brought: list[Normalised | PlainChunk] = []
        self.usage: Usage | None = None
        self.prompt_usage: Usage | None = None  # the prompt's part, where a dialect knows it from the start
        self.reported: Any = None  # what `usage` was read from, else all that the upstream said of it
        self.text_bytes = 0
        self.first_output_at: float | None = None  # monotonic clock
        self.ending: Generation.Ending | None = None
        self._upstream, self._decoder = upstream, decoder
        self._parser = sse.SseParser()
        self._plain = PlainChunks()
        self._has_progressed = False
        self._counted_bytes = 0  # of text, when the last usage came
        self._heard = False
        self._malformed: MalformedReply | None = None  # of the newest event, where it could not be read
        self._flags: tuple[str, ...] = ()

    def take(self) -> list[Normalised | PlainChunk]:
        """What has come since the last time."""
        brought, self.brought = self.brought, []
        return brought

    def outcome(self, ending: Generation.Ending, *, text_bytes: int | None = None) -> Outcome:
        """What became of the answer, as far as it was read, or delivered (`text_bytes`)."""
        delivered = self.text_bytes if text_bytes is None else text_bytes
        uncounted = 0 if self.usage is None else max(0, delivered - self._counted_bytes)
        return Outcome(
            ending,
            self.usage,
            self.prompt_usage,
            delivered,
            self.first_output_at,
            uncounted,
            reported=self.reported,
            flags=self._flags,
        )

    def advance(self) -> None:
        """Reads once. An end that comes after every choice has finished is a good one, whatever it looks like.

        Raises UpstreamFault (DeadlineExpired among them), ContradictoryUsage, and what the call was aborted with.
        """
        try:
            self._read()
        except DeadlineExpired:
            if not self._upstream.deadlines.is_after_finish:
                raise
            self.ending = Ending.FINISHED
        except UpstreamFault:
            if not self.chunks.all_finished:
                raise
            self.ending = Ending.FINISHED

    def _read(self) -> None:
        block = self._upstream.read()
        for data in self._parser.feed(block) if block else self._parser.finish():
            plain = self._plain.of_event(data)
            if plain is not None:
                self._malformed, self._has_progressed = None, True
                self.text_bytes += len(plain.text)
                self.brought.append(plain)
            elif self._is_last(data):
                for said in self.chunks.finish_open():
                    self._add(said)
                self._end()
                return
        if self._has_progressed:
            self._has_progressed = False
            self._upstream.deadlines.progressed()
        if not block:
            self._end()
        elif self.chunks.all_finished and not self._upstream.deadlines.is_after_finish:
            self._upstream.deadlines.finished()

    def _end(self) -> None:
        if not self.chunks.is_complete and self._malformed is not None:
            raise self._malformed
        self.ending = Ending.FINISHED if self.chunks.is_complete else Ending.UPSTREAM_BROKE

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
        self._malformed = None
        said = None if event.chunk is None else self.chunks.normalise(event.chunk)
        self.prompt_usage = event.prompt_usage or self.prompt_usage
        if event.reported is not None and (event.usage is not None or self.usage is None):
            self.reported = event.reported
        if said is not None:
            self._add(said)
        if event.chunk is not None and (said is None or said.finishes):
            self._plain.forget()
        elif said is not None and event.reported is None:
            self._plain.learn(data, said)
        if event.usage is not None:
            self.usage, self._counted_bytes = event.usage, self.text_bytes
        # The first event of any kind meets the first-byte budget; after it only what counts resets the idle one.
        if said is not None or event.usage is not None or not self._heard:
            self._heard = self._has_progressed = True
        return event.is_last

    def _add(self, said: Normalised) -> None:
        if said.has_output or said.finishes:
            self.first_output_at = self.first_output_at or time.monotonic()
        self.text_bytes += said.text_bytes
        self.brought.append(said)
