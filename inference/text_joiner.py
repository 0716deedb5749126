"""Joins events that differ in their text alone, before they are parsed."""

import re

import orjson

LEAST_RUN = 4  # a read with fewer events is not worth a look


class TextJoiner:
    """Joins events that differ only in their text, for an answer that is put together before it is sent.

    `one_text` matches an event with one text, and with nothing else that would have to be added up. Its groups are the
    bytes before and after the text.
    """

    __slots__ = ("_around", "_one_text")

    def __init__(self, one_text: re.Pattern[bytes]) -> None:
        self._one_text = one_text
        self._around = (b"", b"")

    def joined(self, events: list[bytes]) -> list[bytes]:
        """Returns the events, with a run of such texts joined into one event."""
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
        if (after + before).join(texts).join((before, after)) != b"".join(run):  # another event stands between them
            return events
        try:
            count = len(orjson.loads(b'["%b"]' % b'","'.join(texts)))
        except orjson.JSONDecodeError:  # more than a text stands between the quotes
            return events
        return [*events[:first], before + b"".join(texts) + after, *events[end:]] if count == len(run) else events
