"""Delivers a stream and settles it exactly once, whatever ends it (docs/api.md#endings)."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Self

import gevent
from django.conf import settings

from billing.ledger.endings import ENDINGS, StreamClosing
from billing.models import Generation
from catalogue.pricing import ContradictoryUsage
from catalogue.routing import health
from gateway.errors import (
    BILLED_ONCE_AT_MOST,
    NOTHING_BILLED,
    ApiError,
    CostUnresolvable,
    ProviderTimeout,
    ReplicaStopping,
    step,
)
from gateway.fastpath.client_watch import ClientLeft
from gateway.fastpath.faults import DeadlineExpired, UpstreamFault
from gateway.fastpath.http_client import OVERALL, UpstreamCall, WorkerStopped
from gateway.observing.request_events import Outcome

from . import checkpointing, idempotency
from .admission import AdmittedRequest
from .failures import broken, error_of_fault, fault_sentence, noted_failure
from .generation import Ending, Report, settle, unsettled_of
from .reader import StreamReader

# The ending of a stream by the exception that broke it off; the first class that matches counts.
ENDING_OF: tuple[tuple[type[Exception], Generation.Ending], ...] = (
    (DeadlineExpired, Ending.STALLED),
    (UpstreamFault, Ending.UPSTREAM_BROKE),
    (ContradictoryUsage, Ending.COST_UNRESOLVABLE),
    (ClientLeft, Ending.CLIENT_LEFT),
    (WorkerStopped, Ending.WORKER_STOPPED),
)
LARGE_PIECE_BYTES = 4096  # with nearly all clients a smaller piece is written whole or not at all
KEPT_BYTES = 16 * 1024  # the content of a smaller request is not worth dropping
HEAD_BYTES = 1024  # an upper bound of an answer's head, which is sent with the first piece
KEPT_MARKS = 64  # pieces whose lengths are kept; the text of older ones is assumed to be evenly spread
BILLED = "What was delivered is billed."
STOPPING = "The server is restarting."


class BilledStream:
    """Iterates over the frames of a stream, counts what is delivered and settles once, in `__next__` or `close`.

    `primed()` reads up to the first output. A stream that ends before that gets an error status and no bill, and
    leaves no record unless its usage is contradictory.
    """

    def __init__(self, admitted: AdmittedRequest, upstream: UpstreamCall, reader: StreamReader) -> None:
        self._admitted, self._upstream, self._reader = admitted, upstream, reader
        self._framing = admitted.form.framing(reader.normaliser, admitted.call)
        self._ready: list[bytes] = []
        # An example of what has reached the client: three pieces, of which the last one is large and half written.
        #
        #   frames  0 ------ 900 ------ 1,700 - - - - - - - - - 9,700    _marks: (900, 40), (1700, 75), (9700, 475)
        #   text    0         40           75                      475
        #           `-- _written: 1,700 --'`-- _handed_out: 9,700, so 8,000 are being written
        #
        # The kernel had sent 2,000 bytes of the connection before it took the last one (_sent_before, with the head of
        # the answer), and has sent 6,000 now: 1,700 + 4,000 have reached the client, and 75 + 400 / 2 of the text.
        self._handed_out = self._written = 0  # bytes of frames: given to the server, and known to have been written
        self._marks = deque([(0, 0)], KEPT_MARKS)  # at the end of each piece: bytes of frames and of text so far
        self._sent_before = 0  # bytes that the kernel had sent when a large piece was handed out
        self._ending: Generation.Ending | None = None
        self._fault: UpstreamFault | None = None  # what broke the stream off; quoted in the error
        self._stopped_because = STOPPING
        self._settled = False
        self._client_left = False  # True while we wait for the usage of a stream whose client has left
        self.generation_pk = admitted.id
        self.has_checkpoint = False

    def primed(self) -> Self:
        """Waits for the first output or finish. Raises an ApiError if the stream fails before that, and ClientLeft."""
        try:
            while self._reader.first_output_at is None:
                if self._reader.ending is not None:
                    raise UpstreamFault("returned an empty stream")
                self._reader.advance()
        except (ContradictoryUsage, UpstreamFault) as error:
            if self._reader.first_output_at is None:
                raise self._refused(error) from error
            self._break_off(error)  # the output came in the same read, so it is delivered before the error
        except BaseException:
            self._abandon()
            raise
        self._ready += self._framing.frames(self._reader.take())
        if self._upstream.sent_bytes > KEPT_BYTES:
            self._admitted = self._admitted.without_content()
        checkpointing.register(self)
        self._upstream.on_client_left = self._note_client_left
        return self

    def _refused(self, error: ContradictoryUsage | UpstreamFault) -> ApiError:
        """Returns the error for a stream that failed before its first output. Contradictory usage is recorded."""
        self._upstream.abort(error)
        if isinstance(error, ContradictoryUsage):
            self._settle(Ending.COST_UNRESOLVABLE)
            return error_of_fault(error, self._admitted, record=self.generation_id)
        self._abandon()
        return noted_failure(error, self._admitted)

    @property
    def generation_id(self) -> str:
        """Returns the generation id as the client sees it."""
        return self._admitted.public_id

    @property
    def adjusted(self) -> tuple[str, ...]:
        """Returns the parameters that were changed or dropped on the way to the upstream."""
        return (*self._admitted.upstream_call.adjusted_fields, *self._upstream.adjusted)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Returns the frames of one read as one piece, and at the end the closing frames.

        The server calls it again once the piece is written.
        """
        client = self._upstream.client
        self._written = self._handed_out
        while not self._ready:
            if self._settled:
                raise StopIteration
            ending = self._ending or self._reader.ending
            if ending is None:
                self._read()
            else:
                self._ready = self._closing_frames(ending)
        frames, self._ready = b"".join(self._ready), []
        if len(frames) > LARGE_PIECE_BYTES:
            self._sent_before = client.sent_bytes + (0 if self._written else HEAD_BYTES)
        client.answering, client.probed_bytes = True, 0
        self._handed_out += len(frames)
        self._marks.append((self._handed_out, self._reader.text_bytes))
        return frames

    def close(self) -> None:
        """Settles what was delivered, unless the stream is settled already.

        If it is not, the client has left or the worker is stopping, and the last piece was not written whole.
        """
        try:
            if self._settled:
                return
            self._ending = self._ending or Ending.CLIENT_LEFT
            if not (self.has_delivered or self.has_checkpoint):
                self._abandon()
                return
            with step("settling the charge", BILLED_ONCE_AT_MOST):
                self._settle(self._ending, text_bytes=self._delivered)
        finally:
            self._complete_event(self._ending)

    def _complete_event(self, ending: Generation.Ending | None) -> None:
        event = self._admitted.event
        if ending == Ending.CLIENT_LEFT:
            event.outcome = Outcome.CLIENT_LEFT
        elif ending != Ending.FINISHED and ending is not None and event.outcome == Outcome.SERVED:
            error = self._error_of(ending)
            event.broke(error.code, error.message)
        event.complete()

    @property
    def has_delivered(self) -> bool:
        """Tells whether anything has reached the client, or will; for `checkpointing`."""
        return self._reached > 0

    @property
    def _reached(self) -> int:
        """Returns the bytes of frames that have reached the client or will, by the kernel's count.

        They are the pieces that were written and the sent part of a large one that is being written.
        """
        client, piece = self._upstream.client, self._handed_out - self._written
        sent = client.sent_bytes - self._sent_before if piece > LARGE_PIECE_BYTES else 0
        return max(0, self._written + min(piece, max(0, sent)) - client.lost_bytes)

    @property
    def _delivered(self) -> int:
        """Returns the bytes of text in what has reached the client."""
        reached, (size, text) = self._reached, self._marks[-1]
        if reached >= size:
            return text
        for (start, before), (end, behind) in pairwise([(0, 0), *self._marks]):
            if reached < end:
                return before + (behind - before) * (reached - start) // (end - start)
        return text

    def frozen(self) -> str:
        """Serialises what would be settled if the worker died now; for `checkpointing`."""
        outcome = self._reader.outcome(Ending.WORKER_STOPPED, text_bytes=self._delivered)
        return unsettled_of(self._admitted, outcome).serialized().decode()

    def stop(self, because: str) -> None:
        """Ends the stream as worker-stopped, even if the upstream has sent more; for `checkpointing`."""
        if self._ending is None:
            self._ending, self._stopped_because = Ending.WORKER_STOPPED, because
        self._upstream.abort(WorkerStopped())

    def _note_client_left(self) -> None:
        """Gives the upstream a moment to report the usage if it has not. Runs in gevent's hub, so it must not wait."""
        self._client_left = True
        if self._reader.is_counted or self._reader.ending is not None:
            self._upstream.abort(ClientLeft())
        else:
            self._upstream.deadlines.client_left()

    def _read(self) -> None:
        try:
            self._reader.advance()
        except (UpstreamFault, ContradictoryUsage, ClientLeft, WorkerStopped) as error:
            self._break_off(error)
        except gevent.GreenletExit:
            self._ending = Ending.WORKER_STOPPED
            raise
        if self._client_left:
            self._end_after_client()
        else:
            self._ready += self._framing.frames(self._reader.take())

    def _end_after_client(self) -> None:
        """Ends a stream whose client has left once the usage is reported or the upstream sends more output instead."""
        reader = self._reader
        reader.take()
        if self._ending == Ending.COST_UNRESOLVABLE:
            return
        if reader.ending is None and (reader.is_counted or reader.text_bytes > self._marks[-1][1]):
            self._upstream.abort(ClientLeft())
            self._ending = Ending.CLIENT_LEFT
        elif self._ending or reader.ending:
            self._ending = Ending.CLIENT_LEFT

    def _break_off(self, error: Exception) -> None:
        self._upstream.abort(error)
        self._ending = next(ending for kind, ending in ENDING_OF if isinstance(error, kind))
        self._fault = error if isinstance(error, UpstreamFault) else None

    def _closing_frames(self, ending: Generation.Ending) -> list[bytes]:
        """Settles, then returns the frames for the ending.

        There are none if the client has left, or its connection was lost before all that was written had arrived.
        """
        if self._client_left or self._upstream.client.lost_bytes:
            self._ending = Ending.CLIENT_LEFT if ending == Ending.FINISHED else ending
            self.close()
            return []
        try:
            with step("settling the charge", BILLED_ONCE_AT_MOST):
                report = self._settle(ending)
        except ApiError as failure:
            self._admitted.event.broke(failure.code, failure.message)
            return self._framing.broke(failure, None)
        frames = self._framing.frames(self._reader.take_finishes())
        match ENDINGS[ending].closing:
            case StreamClosing.NOTHING:
                return []
            case StreamClosing.FINISH:
                return [*frames, *self._framing.finished(report)]
            case StreamClosing.EMPTY_CHUNK:
                return [*frames, *self._framing.stalled(self._error_of(ending), report)]
            case StreamClosing.ERROR:
                return [*frames, *self._framing.broke(self._error_of(ending), report)]

    def _error_of(self, ending: Generation.Ending) -> ApiError:
        route = self._admitted.route
        if ending == Ending.COST_UNRESOLVABLE:
            return CostUnresolvable(f"Provider {route.upstream.slug!r} reported usage that contradicts itself.")
        if ending == Ending.WORKER_STOPPED:
            return ReplicaStopping(f"{self._stopped_because} {BILLED}")
        fault = self._fault or UpstreamFault("broke off in mid-stream")
        bill = NOTHING_BILLED if self._is_waived(ending) else BILLED
        if ending == Ending.STALLED:  # the error is logged; not every wire form shows it to the client
            return ProviderTimeout(f"{fault_sentence(fault, route)} {bill}")
        return broken(fault, self._admitted, bill=bill)

    def _is_waived(self, ending: Generation.Ending) -> bool:
        """Tells whether the operator waives the bill because the provider broke the stream off.

        A stream that exceeds the overall timeout is billed: that limit is the gateway's own.
        """
        if settings.GATEWAY_BILL_BROKEN_STREAMS or not ENDINGS[ending].is_provider_failure:
            return False
        return not (isinstance(self._fault, DeadlineExpired) and self._fault.budget == OVERALL)

    def _settle(self, ending: Generation.Ending, *, text_bytes: int | None = None) -> Report:
        """Settles, closes the upstream, and returns the usage and metadata for the last chunk."""
        self._settled, self._ending = True, ending
        checkpointing.forget(self)
        self._upstream.stop_watching()
        outcome = self._reader.outcome(ending, text_bytes=text_bytes)
        if self._is_waived(ending):
            outcome = replace(outcome, is_waived=True)
        try:
            return settle(self._admitted, outcome, has_checkpoint=self.has_checkpoint)
        finally:
            # Before the last bytes are written: the client may send its next request as soon as it has them.
            idempotency.end_request(self._admitted.event)
            self._upstream.close()
            is_failure = ENDINGS[ending].is_provider_failure
            words = self._error_of(ending).message if is_failure else ""
            health.note(self._admitted.route.upstream.slug, failed=is_failure, words=words)

    def _abandon(self) -> None:
        """Ends a stream of which nothing was delivered, without bill or record."""
        self._settled = True
        checkpointing.forget(self)
        idempotency.end_request(self._admitted.event)
        self._upstream.close()
