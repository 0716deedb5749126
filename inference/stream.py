"""`Metered`: a stream's life, and the duty to settle it exactly once whatever ends it (docs/api.md#endings)."""

from collections.abc import Iterator
from typing import Any, Self

import gevent

from billing.models import Generation
from catalogue import health
from catalogue.pricing import ContradictoryUsage
from gateway.errors import BILLED_ONCE_AT_MOST, ApiError, CostUnresolvable, ProviderError, ReplicaGivesUp
from gateway.exception_handler import envelope
from gateway.steps import step

from . import checkpointing, sse
from .chunks import Normalised
from .dispatch import Dispatched
from .failures import refusal, told
from .plain_chunks import PlainChunk
from .reader import StreamReader
from .records import Admission, Ending
from .settling import Report, frozen, settle
from .upstream.client import WorkerStopped
from .upstream.deadlines import DeadlineExpired
from .upstream.faults import UpstreamFault
from .watch import ClientLeft

UPSTREAM_FAILED = frozenset({Ending.STALLED, Ending.UPSTREAM_BROKE})
BILLED = "What was delivered is billed."
STOPPING = "This replica is stopping."


class Metered:
    """The frames of a stream. It counts what it delivers and settles once, in `__next__` or in `close`.

    `primed()` reads up to the first output, so that until then every ending is a status with no bill and no record.
    """

    def __init__(self, admission: Admission, dispatched: Dispatched, reader: StreamReader) -> None:
        self._admission, self._dispatched, self._reader = admission, dispatched, reader
        self._ready: list[bytes] = []
        self._handed_out = self._delivered = 0  # bytes of text: given to the server, and known to have been written
        self._wrote = False
        self._held: dict[str, Any] | None = None  # the newest finish chunk, which may have to carry the usage
        self._ending: Generation.Ending | None = None
        self._fault: UpstreamFault | None = None  # what broke it off, to be quoted
        self._stopped_because = STOPPING
        self._settled = False
        self.generation_pk = admission.id
        self.opened_at = admission.started
        self.has_checkpoint = False

    def primed(self) -> Self:
        """Waits for the first output or finish. Raises the ApiError of whatever came instead, or ClientLeft."""
        try:
            while self._reader.first_output_at is None:
                if self._reader.ending is not None:
                    raise UpstreamFault("ended its stream before any output")
                self._reader.advance()
        except (ContradictoryUsage, UpstreamFault) as error:
            if self._reader.first_output_at is None:
                raise self._refused(error) from error
            self._break_off(error)  # behind its first output, in the same read: as if it had come in the next one
        except BaseException:
            self._abandon()
            raise
        self._queue()
        checkpointing.register(self)
        return self

    def _refused(self, error: ContradictoryUsage | UpstreamFault) -> ApiError:
        """What the client is told of a stream that failed before its first output. Contradictory usage is recorded."""
        if isinstance(error, ContradictoryUsage):
            self._settle(Ending.COST_UNRESOLVABLE)
            return refusal(error, self._admission, record=self.generation_id)
        self._dispatched.note(failed=health.is_failure(error.status))
        self._abandon()
        return refusal(error, self._admission)

    @property
    def generation_id(self) -> str:
        """The id that the client sees."""
        return self._admission.public_id

    @property
    def adjusted(self) -> tuple[str, ...]:
        """Parameters that the upstream did not get as they were sent."""
        return self._dispatched.adjusted

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """The frames of one read in one piece; at the end the closing frames. To be asked again means: written."""
        self._wrote |= self._dispatched.client.answering
        self._delivered = self._handed_out
        while not self._ready:
            if self._settled:
                raise StopIteration
            ending = self._ending or self._reader.ending
            if ending is None:
                self._read()
            else:
                self._ready = self._closing_frames(ending)
        frames, self._ready = b"".join(self._ready), []
        self._dispatched.client.answering = True
        self._handed_out = self._reader.text_bytes
        return frames

    def close(self) -> None:
        """Settles what was delivered, if nothing has yet: the client left, or the worker is stopping.

        What was handed out last has failed to be written, or nobody would close here.
        """
        if self._settled:
            return
        if not self._wrote:
            self._abandon()
            return
        with step("settling the charge", BILLED_ONCE_AT_MOST):
            self._settle(self._ending or Ending.CLIENT_LEFT, text_bytes=self._delivered)

    @property
    def has_delivered(self) -> bool:
        """Whether anything has been written (`checkpointing`)."""
        return self._wrote

    def frozen(self) -> str:
        """What would be settled if the worker died now (`checkpointing`)."""
        return frozen(self._admission, self._reader.outcome(Ending.WORKER_STOPPED, text_bytes=self._delivered))

    def stop(self, because: str) -> None:
        """Ends the stream as worker-stopped (`checkpointing`), whatever the upstream has sent already."""
        if self._ending is None:
            self._ending, self._stopped_because = Ending.WORKER_STOPPED, because
        self._dispatched.upstream.abort(WorkerStopped())

    def _read(self) -> None:
        try:
            self._reader.advance()
        except (UpstreamFault, ContradictoryUsage, ClientLeft, WorkerStopped) as error:
            self._break_off(error)
        except gevent.GreenletExit:
            self._ending = Ending.WORKER_STOPPED
            raise
        self._queue()

    def _break_off(self, error: Exception) -> None:
        self._ending = _ending_of(error)
        self._fault = error if isinstance(error, UpstreamFault) else None

    def _queue(self) -> None:
        for said in self._reader.take():
            self._queue_one(said)

    def _queue_one(self, said: Normalised | PlainChunk) -> None:
        if isinstance(said, PlainChunk):
            self._ready.append(said.frame)
        elif said.finishes:
            self._ready.extend(self._released())
            self._held = said.chunk
        else:
            self._ready.append(sse.frame(said.chunk))

    def _released(self) -> list[bytes]:
        """The held finish chunk, which turned out not to be the one that carries the usage."""
        held, self._held = self._held, None
        return [] if held is None else [sse.frame(held)]

    def _closing_frames(self, ending: Generation.Ending) -> list[bytes]:
        """Settles, then says how it ended."""
        try:
            with step("settling the charge", BILLED_ONCE_AT_MOST):
                report = self._settle(ending)
        except ApiError as failure:
            return [sse.frame(envelope(failure))]
        provider = f"Provider {self._admission.route.upstream.slug!r}"
        match ending:
            case Ending.CLIENT_LEFT:
                return []
            case Ending.FINISHED:
                return [*self._finish_frames(report), sse.DONE]
            case Ending.STALLED:
                stalled = self._reader.chunks.stalled() | report
                return [*self._released(), sse.frame(stalled), sse.DONE]
            case Ending.COST_UNRESOLVABLE:
                error: ApiError = CostUnresolvable(f"{provider} reported usage that contradicts itself.")
            case Ending.WORKER_STOPPED:
                error = ReplicaGivesUp(f"{self._stopped_because} {BILLED}")
            case _:
                fault = self._fault or UpstreamFault("broke off in mid-stream")
                error = ProviderError(f"{told(fault, self._admission.route)} {BILLED}")
        return [*self._released(), sse.frame(envelope(error))]

    def _finish_frames(self, report: Report) -> list[bytes]:
        """Usage rides on the finish chunk, or on a chunk of its own where the client asked for one."""
        if self._held is not None and not self._admission.call.include_usage:
            return [sse.frame(self._held | self._reader.chunks.unsent | report)]
        return [*self._released(), sse.frame(self._reader.chunks.closing([]) | report)]

    def _settle(self, ending: Generation.Ending, *, text_bytes: int | None = None) -> Report:
        """Settles once, stops the upstream, and returns what the last chunk reports."""
        self._settled = True
        checkpointing.forget(self)
        self._dispatched.watch.stop()
        self._dispatched.note(failed=ending in UPSTREAM_FAILED)
        outcome = self._reader.outcome(ending, text_bytes=text_bytes)
        try:
            return settle(self._admission, outcome, has_checkpoint=self.has_checkpoint)
        finally:
            self._dispatched.close()

    def _abandon(self) -> None:
        """Ends a stream of which nothing was delivered: no bill, no record."""
        self._settled = True
        checkpointing.forget(self)
        self._dispatched.close()


def _ending_of(error: Exception) -> Generation.Ending:
    match error:
        case DeadlineExpired():
            return Ending.STALLED
        case ContradictoryUsage():
            return Ending.COST_UNRESOLVABLE
        case ClientLeft():
            return Ending.CLIENT_LEFT
        case WorkerStopped():
            return Ending.WORKER_STOPPED
        case _:
            return Ending.UPSTREAM_BROKE
