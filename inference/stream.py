"""`Metered`: a stream's life, and the duty to settle it exactly once whatever ends it (design section 4)."""

import time
from collections.abc import Iterator
from typing import Any, Self

import gevent

from billing.models import Generation
from billing.settlement import settle_shielded
from catalogue.pricing import ContradictoryUsage, Usage
from gateway.errors import ApiError, CostUnresolvable, ProviderError
from gateway.exception_handler import envelope
from gateway.steps import step

from . import estimator, sse
from .chunks import ChatChunks, Normalised
from .deadlines import DeadlineExpired
from .dialects.base import StreamDecoder, UpstreamFault
from .dialects.http import UpstreamCall
from .failures import refusal
from .records import Admission, Ending, Outcome, record
from .watch import ClientLeft, ClientWatch
from .wire import metadata_of, usage_of

Report = dict[str, Any]


class Metered:
    """The frames of a stream. It counts what it delivers and settles once, in `__next__` or in `close`.

    `primed()` reads up to the first output, so that until then every ending is a status with no bill and no record.
    """

    def __init__(
        self, admission: Admission, upstream: UpstreamCall, decoder: StreamDecoder, watch: ClientWatch
    ) -> None:
        self._admission, self._upstream, self._decoder, self._watch = admission, upstream, decoder, watch
        self._parser = sse.SseParser()
        self._chunks = ChatChunks(
            id=admission.public_id,
            created=admission.created,
            model=admission.route.id,
            choices=admission.call.choices,
        )
        self._ready: list[bytes] = []
        self._held: dict[str, Any] | None = None  # the newest finish chunk, which may have to carry the usage
        self._usage: Usage | None = None
        self._text_bytes = 0
        self._first_token_at: float | None = None
        self._ending: Generation.Ending | None = None
        self._settled = False

    def primed(self) -> Self:
        """Waits for the first output or finish. Raises the ApiError of whatever came instead, or ClientLeft."""
        try:
            while self._first_token_at is None:
                if not self._advance():
                    raise UpstreamFault("ended its stream before any output")
        except ContradictoryUsage as error:
            self._settle(Ending.COST_UNRESOLVABLE)
            raise refusal(error, self._admission.route) from error
        except UpstreamFault as error:
            self._abandon()
            raise refusal(error, self._admission.route) from error
        except BaseException:
            self._abandon()
            raise
        return self

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """The frames of one read in one piece; at the end the closing frames."""
        while not self._ready:
            if self._settled:
                raise StopIteration
            if self._ending is None:
                self._read()
            else:
                self._ready = self._closing_frames(self._ending)
        frames, self._ready = b"".join(self._ready), []
        return frames

    def close(self) -> None:
        """Settles what was delivered, if nothing has yet: the client left, or the worker is stopping."""
        if not self._settled:
            with step("settling the charge"):
                self._settle(self._ending or Ending.CLIENT_LEFT)

    def _read(self) -> None:
        """Reads once, and notices how the stream ended."""
        try:
            if not self._advance():
                self._ending = self._ending_of_end()
        except DeadlineExpired:
            self._ending = Ending.FINISHED if self._upstream.deadlines.is_after_finish else Ending.STALLED
        except ContradictoryUsage:
            self._ending = Ending.COST_UNRESOLVABLE
        except UpstreamFault:
            # Complete means that every choice finished, not that the connection ended well after it.
            self._ending = Ending.FINISHED if self._chunks.all_finished else Ending.UPSTREAM_BROKE
        except ClientLeft:
            self._ending = Ending.CLIENT_LEFT
        except gevent.GreenletExit:
            self._ending = Ending.WORKER_STOPPED
            raise

    def _advance(self) -> bool:
        """Reads once and queues what it brought. False at the end of the stream."""
        block = self._upstream.read()
        for data in self._parser.feed(block) if block else self._parser.finish():
            event = self._decoder.decode(data)
            if event.is_last and self._first_token_at is not None:
                self._ending = self._ending_of_end()
                return True
            if event.usage is not None:
                self._usage = event.usage
            said = None if event.chunk is None else self._chunks.normalise(event.chunk)
            if said is not None:
                self._queue(said)
            if self._first_token_at is None or said is not None or event.usage is not None:
                self._upstream.deadlines.progressed()
        if self._chunks.all_finished and not self._upstream.deadlines.is_after_finish:
            self._upstream.deadlines.finished()
        return bool(block)

    def _ending_of_end(self) -> Generation.Ending:
        return Ending.FINISHED if self._chunks.is_complete else Ending.UPSTREAM_BROKE

    def _queue(self, said: Normalised) -> None:
        if self._first_token_at is None:
            if not said.has_output and not said.finishes:
                return
            self._first_token_at = time.monotonic()
        self._text_bytes += said.text_bytes
        if said.finishes:
            self._ready.extend(self._released())
            self._held = said.chunk
        else:
            self._ready.append(sse.frame(said.chunk))

    def _released(self) -> list[bytes]:
        """The held finish chunk, which turned out not to be the one that carries the usage."""
        held, self._held = self._held, None
        return [] if held is None else [sse.frame(held)]

    def _closing_frames(self, ending: Generation.Ending) -> list[bytes]:
        """Settles, then says how it ended (contract section 4, decisions 6, 8 and 9)."""
        try:
            with step("settling the charge"):
                report = self._settle(ending)
        except ApiError as failure:
            return [sse.frame(envelope(failure))]
        provider = f"Provider {self._admission.route.upstream.slug!r}"
        match ending:
            case Ending.FINISHED:
                return [*self._finish_frames(report), sse.DONE]
            case Ending.STALLED:
                choices = [{"index": 0, "delta": {}, "finish_reason": None}]
                return [*self._released(), sse.frame(self._chunks.closing(choices) | report), sse.DONE]
            case Ending.COST_UNRESOLVABLE:
                unresolvable = CostUnresolvable(f"{provider} reported usage that contradicts itself.")
                return [*self._released(), sse.frame(envelope(unresolvable))]
            case Ending.CLIENT_LEFT:
                return []
            case _:
                broken = ProviderError(f"{provider} broke off in mid-stream. What was delivered is billed.")
                return [*self._released(), sse.frame(envelope(broken))]

    def _finish_frames(self, report: Report) -> list[bytes]:
        """Usage rides on the finish chunk, or on a chunk of its own where the client asked for one."""
        if self._held is not None and not self._admission.call.include_usage:
            return [sse.frame(self._held | report)]
        return [*self._released(), sse.frame(self._chunks.closing([]) | report)]

    def _settle(self, ending: Generation.Ending) -> Report:
        """Settles once, stops the upstream, and returns what the last chunk reports."""
        self._settled = True
        self._watch.stop()
        try:
            usage = self._usage if ending != Ending.COST_UNRESOLVABLE else None
            outcome = Outcome(
                usage=usage or self._estimate(),
                ending=ending,
                usage_estimated=usage is None,
                first_token_at=self._first_token_at,
            )
            generation = record(self._admission, outcome)
            settlement = settle_shielded(generation)
        finally:
            self._upstream.close()
        return {"usage": usage_of(generation, settlement), "gateway_metadata": metadata_of(generation)}

    def _abandon(self) -> None:
        """Ends a stream of which nothing was delivered: no bill, no record."""
        self._settled = True
        self._watch.stop()
        self._upstream.close()

    def _estimate(self) -> Usage:
        return Usage(
            uncached_prompt=estimator.prompt_tokens(self._admission.call.body),
            completion=estimator.tokens_in(self._text_bytes),
        )
