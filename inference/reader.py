"""Reading a streamed answer: bytes to normalised deltas, with the usage, the output and the end noticed on the way."""

import re
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

_ENERGY = b": energy "
LEAST_RUN = 4  # events in a read, for which it is worth to look
_BLANK = b"data:  "  # what data of blanks alone begins with
_BOM = b"\xef\xbb\xbf"
_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b":")
_LONGEST_BEGINNING = max(map(len, _BEGINNINGS))


def is_event_stream(first: bytes) -> bool:
    """True where a body that begins so is a stream of events, and no JSON."""
    return first.removeprefix(_BOM).lstrip(b"\r\n").startswith(_BEGINNINGS)


def may_be_event_stream(first: bytes) -> bool:
    """True where a body that begins so is a stream of events, or may become one after these few bytes."""
    if is_event_stream(first):
        return True
    return 0 < len(first) < _LONGEST_BEGINNING and any(beginning.startswith(first) for beginning in _BEGINNINGS)


def is_json(first: bytes) -> bool:
    """True where a body that begins so is JSON."""
    return first.removeprefix(_BOM).lstrip().startswith((b"{", b"["))


class Source(Protocol):
    """What a stream is read from, an UpstreamCall in general."""

    deadlines: Deadlines

    def read(self) -> bytes:
        """The next bytes as soon as there are any; empty at the end."""


class SseParser:
    """Turns the bytes of an event stream into the data of its events.

    Lines may end in LF, CRLF or CR, be cut anywhere, and the colon may lack its space. Comments, `event`, `id` and
    `retry` are dropped: both dialects say in the data what it is. So are events without data, which keep a connection
    alive and say nothing. `energy` is the text of the last comment by which an
    upstream reports the energy that it measured, empty until then.
    """

    __slots__ = ("_half_line_end", "_has_rest", "_partial", "_started", "energy")

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # of an event that is not complete
        self._started = False
        self._half_line_end = b""  # a CR at the end of a block, which may be half of a CRLF
        self._has_rest = True  # any of these three has to be looked at
        self.energy = b""

    def feed(self, block: bytes) -> list[bytes]:
        """The data of every event that this block completes, in order."""
        # `find`, since `in` of bytes makes and drops an exception first.
        if self._has_rest or block.find(b"\r") >= 0 or not block.endswith(b"\n\n"):
            block = self._completed(block)
        if block.startswith(b"data: ") and block.find(_BLANK) < 0:
            # Of one line of data each, as nearly all events are: split in one go.
            if block.find(b"\n") == len(block) - 2 and len(block) > 8:
                return [block[6:-2]]
            events = block[6:-2].split(b"\n\ndata: ")
            if b"".join(events).find(b"\n") < 0 and all(events):
                return events
        return self._events(block[:-2])

    def finish(self) -> list[bytes]:
        """The data of an event that the end of the body completes, for upstreams that omit the last blank line."""
        rest = b"".join(self._partial)
        self._partial = []
        return self._events(rest if self._started else rest.removeprefix(_BOM))

    def _completed(self, block: bytes) -> bytes:
        """All events that are complete now, in lines that end in LF, up to the blank line of the last."""
        if self._half_line_end or block.find(b"\r") >= 0:
            block = self._half_line_end + block
            self._half_line_end = b"\r" if block.endswith(b"\r") else b""
            block = block.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._partial.append(block)
        # Pieces of a long event are joined once: over and over they would take quadratic time.
        if block.find(b"\n\n") < 0 and not (block.startswith(b"\n") and self._partial[-2:][0].endswith(b"\n")):
            self._has_rest = True
            return b""
        text = b"".join(self._partial)
        end = text.rfind(b"\n\n") + 2
        if end == 1:
            return b""
        self._partial = [text[end:]] if end < len(text) else []
        self._has_rest = bool(self._partial or self._half_line_end)
        text = text[:end]
        if not self._started:
            self._started = True
            text = text.removeprefix(_BOM)
        return text

    def _events(self, text: bytes) -> list[bytes]:
        """The data of whole events, the blank line behind the last one left out."""
        if text.startswith(b"event:") and text.find(_BLANK) < 0:
            # Of a name and one line of data each: likewise.
            name, _, line = text.partition(b"\ndata: ")
            if line.find(b"\n") < 0 and name.find(b"\n") < 0 and line:
                return [line]
            lines = text.split(b"\n")
            names, data = b"\n".join(lines[::3]), b"\n".join(lines[1::3])
            events = data[6:].split(b"\ndata: ")
            count = len(events)
            is_plain = len(lines) == 3 * count - 1 and data.startswith(b"data: ") and not any(lines[2::3])
            if is_plain and all(events) and names.count(b"event:") == count and names.find(b"data:") < 0:
                return events
        events, lines = [], []
        for raw in [*text.split(b"\n"), b""]:
            line = raw.removeprefix(_BOM)  # some upstreams begin every event with one
            if line.startswith(b"data:"):
                lines.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                lines.append(b"")
            elif line.startswith(_ENERGY):
                self.energy = line.removeprefix(_ENERGY)
            elif not line and lines:
                event = b"\n".join(lines)
                if event.strip():
                    events.append(event)
                lines = []
        return events


class TextJoiner:
    """Makes one event of those that differ in their text alone, for a whole answer that is put together.

    `one_text` is matched by an event that says one text and nothing else that adds up: its groups are what is around.
    """

    __slots__ = ("_around", "_one_text")

    def __init__(self, one_text: re.Pattern[bytes]) -> None:
        self._one_text = one_text
        self._around = (b"", b"")

    def joined(self, events: list[bytes]) -> list[bytes]:
        """The events, with a run of such texts as one."""
        if len(events) < LEAST_RUN:
            return events
        middle = events[len(events) // 2]
        before, after = self._around
        if not (before and middle.startswith(before) and middle.endswith(after)):
            match = self._one_text.fullmatch(middle)
            if match is None:
                return events
            before, after = self._around = match[1], match[2]
        first = next(at for at, event in enumerate(events) if event.startswith(before) and event.endswith(after))
        end = len(events)
        while not (events[end - 1].startswith(before) and events[end - 1].endswith(after)):
            end -= 1
        run = events[first:end]
        texts = [event[len(before) : -len(after)] for event in run]
        if (after + before).join(texts).join((before, after)) != b"".join(run):  # another event is between them
            return events
        try:
            count = len(orjson.loads(b'["%b"]' % b'","'.join(texts)))
        except orjson.JSONDecodeError:  # what is between the quotes is more than a text
            return events
        return [*events[:first], before + b"".join(texts) + after, *events[end:]] if count == len(run) else events


class StreamReader:
    """One streamed answer as it comes in.

    `advance` reads once and adds to `pending`; `ending` is set once the answer has ended well or badly. What ends it
    otherwise is raised, after everything before it has been added. One event that cannot be read is skipped and
    flagged; a second one right behind it ends the answer.

    `is_implausible` is asked of the usage, with the bytes of the output until then (`serving.is_implausible`).
    `joins_texts` where nobody will see the single chunks.
    """

    def __init__(
        self,
        upstream: Source,
        decoder: StreamDecoder,
        normaliser: Normaliser,
        is_implausible: Callable[[Usage, int], bool],
        *,
        joins_texts: bool = False,
    ) -> None:
        self.normaliser = normaliser
        self.pending: list[Delta] = []
        self.usage: Usage | None = None
        self.prompt_usage: Usage | None = None  # the prompt's part, where a dialect knows it from the start
        self.reported: Any = None  # what `usage` was read from, else all that the upstream said of it
        self.first_output_at: float | None = None  # monotonic clock
        self.ending: Generation.Ending | None = None
        self._upstream, self._decoder, self._is_implausible = upstream, decoder, is_implausible
        self._decode, self._take = decoder.decode, normaliser.take
        self._parser = SseParser()
        self._joined = TextJoiner(decoder.one_text).joined if joins_texts else None
        self._counted_bytes = 0  # of text, when the last usage came
        self._has_first_event = False
        self._is_unbelievable = False  # a flag of the record

    @property
    def text_bytes(self) -> int:
        """UTF-8 length of the words so far."""
        return self.normaliser.text_bytes

    @property
    def is_counted(self) -> bool:
        """Whether the upstream has reported a usage since its last words."""
        return self.usage is not None and self._counted_bytes >= self.text_bytes

    def take(self) -> list[Delta]:
        """The deltas that have come since the last time."""
        pending, self.pending = self.pending, []
        return pending

    def take_finishes(self) -> list[Delta]:
        """Returns the finishes of an answer that has ended. They are held until then, since an upstream may go on."""
        return [*self.normaliser.finishes()]

    def outcome(self, ending: Generation.Ending, *, text_bytes: int | None = None) -> Delivery:
        """What became of the answer, as far as it was read, or delivered (`text_bytes`)."""
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
        """The energy that the upstream measured: said in a chunk, or else in a comment of the stream."""
        if self.normaliser.measured_units is None and self._parser.energy:
            with suppress(orjson.JSONDecodeError):
                return measured_units_in({"energy": orjson.loads(self._parser.energy)})
        return self.normaliser.measured_units

    def advance(self) -> None:
        """Reads once. An end that comes after every choice has finished is a good one, whatever it looks like.

        Raises UpstreamFault (DeadlineExpired among them), ContradictoryUsage, and what the call was aborted with.
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
            # The first event of any kind meets the first-byte budget, which comments do not; after it only what counts
            # resets the idle one.
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
        """Takes in events up to the first output, one by one, and returns the others.

        An event is no output if its usage contradicts itself.
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
        """Counts the newest usage of this read: each holds all before it. True where there is a whole one.

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
        """The end of the body, or the dialect's own before it, which finishes what is open."""
        if self.normaliser.has_ended:
            self.normaliser.finish_open(self.pending, is_counted=self.usage is not None)
            self._note_output()
        if not self.normaliser.is_complete and self._decoder.unreadable is not None:
            raise self._decoder.unreadable
        self.ending = Ending.FINISHED if self.normaliser.is_complete else Ending.UPSTREAM_BROKE
