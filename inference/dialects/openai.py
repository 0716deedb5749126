"""Implements the dialect of OpenAI: chat completions, which most providers have, and `/responses`, which some have."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import orjson

from catalogue.pricing import ContradictoryUsage, Usage
from catalogue.routing.routes import Route, Upstream
from gateway.fastpath.http_client import UpstreamRequest
from gateway.money import UNITS

from ..call import Call, Shape
from ..deltas import (
    NO_CHOICE,
    CallDelta,
    Delta,
    EnergyReport,
    FinishDelta,
    Note,
    OtherDelta,
    ReportedFailure,
    TextDelta,
    UsageReport,
    delta_of,
    deltas_of,
)
from ..finishes import failure_of
from ..words import REASONING_FIELDS, TEXT_FIELDS, THOUGHTS, dicts, object_of, without
from .base import (
    NOTHING,
    REROUTING_FIELDS,
    SURELY_SHALLOW,
    DroppedFields,
    StreamDecoder,
    UpstreamAnswer,
    check_object,
    check_words,
    counted_reply,
    encoded,
    finish_of,
    headers_for,
    is_named_error,
    is_shallow,
    parse_object,
    refuse_fields,
    refuse_parameters,
    refuse_service_tier,
    refuse_storage,
    require_writable,
    without_parameters,
)
from .errors import MalformedReply, ReportedError, report_of
from .openai_responses import ResponseDecoder
from .openai_usage import completed_usage, prompt_usage_of, usage_of, usage_within

PATHS = {
    Shape.CHAT: "/chat/completions",
    Shape.COMPLETION: "/completions",
    Shape.EMBEDDING: "/embeddings",
    Shape.RESPONSES: "/responses",
}
# Members of a choice that are read here, and those that stay with its text.
OWNED_OF_CHOICE = frozenset({"index", "delta", "text", "finish_reason", "usage", "error"})
WITH_WORDS = ("logprobs",)
_THOUGHTS = frozenset(THOUGHTS)
SERVICE_TIERS = ("auto", "default")
MOST_MEASURED = 10**9  # joules or watt milliseconds; no answer can take that much
HEADERS = partial(headers_for, default_header="Authorization", default_scheme="Bearer")


class OpenAIDialect:
    """See `base.Dialect`."""

    own_shape, results_in_parts = Shape.RESPONSES, False

    def check(self, call: Call, route: Route) -> None:
        """Raises InvalidRequest for a field that must not be sent on.

        That is a routing field of another gateway, a priced service tier, storage, or a parameter that the provider
        refuses by its catalogue entry.
        """
        refuse_fields(call.body, REROUTING_FIELDS)
        refuse_service_tier(call, kept=SERVICE_TIERS)
        refuse_storage(call)
        refuse_parameters(call.body, route.upstream.refused_parameters)

    def check_form(self, call: Call, route: Route) -> None:
        """Accepts every call, since calls are in this dialect's form already."""

    def request(self, call: Call, route: Route) -> UpstreamRequest:
        """Returns the client's fields, unchanged, with the upstream's model name and its field for the cap."""
        taken, adjusted = without_parameters(call.body, route.upstream.refused_parameters)
        body: dict[str, Any] = {**taken, "model": route.upstream_model}
        dropped = DroppedFields()
        if call.shape == Shape.CHAT:
            body["messages"] = _messages(call.body["messages"], route.upstream, dropped)
        passes = call.shape == Shape.RESPONSES
        if passes:
            body["store"] = False  # without the field, the provider would store the answer
        if call.max_tokens is not None:
            body["max_output_tokens" if passes else route.max_tokens_field] = call.max_tokens
        if call.stream:
            body["stream"] = True
            if route.upstream.stream_options and not passes:
                body["stream_options"] = {"include_usage": True}
        url = route.base_url.rstrip("/") + PATHS[call.shape]
        return UpstreamRequest(url, encoded(body), HEADERS(route.upstream), (*adjusted, *dropped))

    def health_request(self, upstream: Upstream) -> UpstreamRequest:
        return UpstreamRequest(f"{upstream.base_url.rstrip('/')}/models", b"", HEADERS(upstream))

    def empty_request(self, upstream: Upstream) -> UpstreamRequest:
        return UpstreamRequest(upstream.base_url.rstrip("/") + PATHS[Shape.CHAT], b"{}", HEADERS(upstream))

    def reply(self, body: bytes, call: Call, total_includes: Collection[str] = NOTHING) -> UpstreamAnswer:
        """See `base.Dialect`. The usage is taken out of the answer object."""
        # 1. Parse the body, and refuse one that holds no answer.
        answer = parse_object(body)
        is_embedding = call.shape == Shape.EMBEDDING
        count_usage = partial(self.usage, is_embedding=is_embedding, total_includes=total_includes)
        if call.shape == Shape.RESPONSES:
            return counted_reply(answer, answer.get("usage"), count_usage)
        if not is_embedding and not answer.get("choices"):
            check_words(answer)
        # 2. Repair and check the choices.
        surplus = _drop_surplus(answer, call.choices)
        if call.shape == Shape.CHAT:
            for choice in dicts(answer.get("choices")):
                if object_of(choice.get("message")):
                    continue
                if delta := object_of(choice.pop("delta", None)):  # some servers put a whole message there
                    choice["message"] = delta
                # After a content filter the answer is empty but has its price. Otherwise nothing was answered, and
                # nothing must be billed.
                elif choice.get("finish_reason") != "content_filter":
                    raise MalformedReply("answered without a message")
        for choice in dicts(answer.get("choices")):
            if (failure := failure_of(choice)) is not None:
                raise ReportedError(report_of(failure))
        # 3. Read the usage and the energy.
        usage = answer.pop("usage", None)
        reply = counted_reply(answer, usage_within(answer) if usage is None else usage, count_usage)
        if reply.usage is None:
            reply.prompt_usage = prompt_usage_of(reply.reported)
        reply.measured_units = measured_units_in(answer)
        reply.is_malformed = surplus
        return reply

    def decoder(self, call: Call, total_includes: Collection[str] = NOTHING) -> StreamDecoder:
        """See `base.Dialect`."""
        if call.shape == Shape.RESPONSES:
            return ResponseDecoder(total_includes)
        return OpenAIDecoder(call.choices, total_includes)

    def usage(self, reported: Any, *, is_embedding: bool, total_includes: Collection[str] = NOTHING) -> Usage | None:
        """See `base.Dialect`. The total of an embedding's usage counts its prompt."""
        if not is_embedding:
            return usage_of(reported, total_includes)
        if isinstance(reported, dict) and reported.get("prompt_tokens") is None:
            reported = {**reported, "prompt_tokens": reported.get("total_tokens")}
        return prompt_usage_of(reported)


class OpenAIDecoder(StreamDecoder):
    """See `base.StreamDecoder`."""

    __slots__ = (
        "_choices",
        "_counted_apart",
        "_finished",
        "_in_messages",
        "_only",
        "_spoken",
        "_total_includes",
        "_usages",
    )
    one_text = re.compile(
        rb'(?!.*"finish_reason": ?")'
        rb'(.*"choices": ?\[\{[^\[{]*"delta": ?\{"content": ?")[^"\\]+("\}[^\[{]*)'
    )

    def __init__(self, choices: int = 1, total_includes: Collection[str] = NOTHING) -> None:
        super().__init__()
        self._choices, self._total_includes = choices, total_includes
        self._finished: set[int] = set()
        self._spoken: set[str] = set()  # the members of deltas that have had text
        self._in_messages = False  # True if this upstream streams messages instead of deltas
        self._only: int | None = None  # the upstream's number of the choice, if only one was asked for
        self._counted_apart: list[Any] = []  # usages of single choices, in chunks without choices (llama.cpp)
        self._usages: dict[int, Any] = {}  # usages within choices (Moonshot)

    def decode(self, events: Iterable[bytes]) -> list[Delta | Note]:
        """See `base.StreamDecoder`.

        Nearly every event is one more piece of one text or call, and goes on unchanged. This loop recognises these with
        as few checks as possible, and passes any other event to `decode_one`.
        """
        out: list[Delta | Note] = []
        halves, most, spoken = self.half_characters, self._choices, self._spoken
        last: TextDelta | None = None  # the delta before, if it is a text that the next event may continue
        for data in events:
            event: Any = None
            try:
                event = orjson.loads(data)
                (choice,) = event["choices"]
                (name,) = delta = choice["delta"]
                index, value, size = choice["index"], delta[name], len(choice)
                is_bare = size == 3 or (size == 4 and choice.get("logprobs", 0) is None)
                is_plain = choice["finish_reason"] is None and type(index) is int and 0 <= index < most
                is_plain = is_plain and not halves.held and not self._only
                is_plain = is_plain and (is_bare or not ("usage" in choice or "error" in choice))
            except (orjson.JSONDecodeError, LookupError, TypeError, ValueError):
                is_plain = False
            if is_plain:
                is_plain = not (
                    "error" in event or "energy" in event or "impact" in event or "gateway_metadata" in event
                )
                is_plain = is_plain and (len(data) <= 2 * SURELY_SHALLOW or is_shallow(data))
            if is_plain and type(value) is str and value and name in TEXT_FIELDS:
                if is_bare and last is not None and last.name == name and last.choice["index"] == index:
                    last.add(event, value)
                else:
                    spoken.add(name)
                    text = TextDelta(event, choice, name, value)
                    out.append(text)
                    last = text if is_bare else None
            elif (
                is_plain and name == "tool_calls" and type(value) is list and len(value) == 1 and type(value[0]) is dict
            ):
                spoken.add(name)
                out.append(CallDelta(event, choice, value[0]))
                last = None
            else:
                self.decode_one(data, out, event)
                last = None
                continue
            self.unreadable = None
            if "system_fingerprint" in event and event["system_fingerprint"] is None:  # the API defines a string
                del event["system_fingerprint"]
            if "usage" in event and (usage := event.pop("usage")) is not None:
                out.append(UsageReport(usage))
                last = None
        return out

    def read(self, event: dict[str, Any], data: bytes, out: list[Delta | Note]) -> None:
        """See `base.StreamDecoder`."""
        if "error" in event or "energy" in event or "impact" in event:
            self._read_members(event, data, out)
        elif len(data) > 2 * SURELY_SHALLOW and not is_shallow(data):
            require_writable(event)
        if event.get("system_fingerprint", "") is None:  # the API defines a string
            del event["system_fingerprint"]
        usage = self._read_choices(event, data, event.pop("usage", None), out)
        if usage is not None:
            out.append(UsageReport(self._added_up(usage, is_apart=not event.get("choices"))))

    def _read_choices(self, event: dict[str, Any], data: bytes, usage: Any, out: list[Delta | Note]) -> Any:
        """Reads an event's choices, of any number and form. Returns the event's usage, or None."""
        if is_named_error(event):
            check_object(event, data)
        event.pop("gateway_metadata", None)
        if usage is None and "x_groq" in event:
            usage = usage_within(event)
        choices, before = event.get("choices"), len(out)
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict):
                self._read_choice(event, choice, position, out)
        if len(out) == before:
            if event.get("success") is False or event.get("errors"):
                check_words(event)
            out.append(OtherDelta(event, NO_CHOICE))
        return usage

    def _read_members(self, event: dict[str, Any], data: bytes, out: list[Delta | Note]) -> None:
        """Reads an event's error and energy. Raises like `base.check_object`."""
        try:
            check_object(event, data)
        except ReportedError:
            if (usage := event.get("usage")) is not None:
                usage = self._added_up(usage, is_apart=not event.get("choices"))
                if self._may_be_counted(usage):  # else ContradictoryUsage would hide the upstream's error
                    out.append(UsageReport(usage))
            raise
        if (measured := measured_units_in(event)) is not None:
            out.append(EnergyReport(measured))

    def _read_choice(
        self, event: dict[str, Any], choice: dict[str, Any], position: int, out: list[Delta | Note]
    ) -> None:
        index = choice.get("index")
        if type(index) is not int or index < 0:
            index = position
        if self._choices == 1:
            # Some upstreams do not number it 0: the first one that comes is the one that was asked for.
            if self._only is None:
                self._only = 0 if self._spoken else index
            index = 0 if index == self._only else index or 1
        is_message = choice.get("delta") is None and "message" in choice
        message = self._unsaid(_message_in(choice)) if is_message else _message_in(choice)
        deltas: list[Delta] = [*deltas_of(index, message)]
        if not is_message:
            self._spoken |= {"tool_calls" if isinstance(each, CallDelta) else each.name for each in _words_of(deltas)}
        end = finish_of(index, choice)
        if isinstance(end, FinishDelta):
            self._finished.add(index)
            deltas.append(end)
        extras = without(choice, OWNED_OF_CHOICE)
        if not deltas and any(value is not None for value in extras.values()):
            deltas.append(delta_of(OtherDelta, index, {}))
        if deltas:
            _share_out(extras, deltas)
        for each in deltas:
            each.chunk = {**event, **each.chunk}
        out += deltas
        if isinstance(end, ReportedFailure):
            out.append(end)
        if choice.get("usage") is not None:
            self._usages[index] = choice["usage"]
            counted = [*self._usages.values()]
            out.append(UsageReport(counted if len(counted) > 1 else counted[0]))

    def _unsaid(self, message: dict[str, Any]) -> dict[str, Any]:
        """Returns what a message in the place of a delta adds. After deltas it repeats them."""
        self._in_messages = self._in_messages or not self._spoken
        if self._in_messages:
            return message
        thoughts = () if self._spoken.isdisjoint(REASONING_FIELDS) else REASONING_FIELDS
        return without(message, self._spoken.union(thoughts))

    def counted(self, reported: Any) -> tuple[Usage | None, Usage | None]:
        """See `base.StreamDecoder`."""
        usage = usage_of(reported, self._total_includes)
        return usage, prompt_usage_of(reported) if usage is None else None

    def completed(self, reported: Any, earlier: Sequence[Any]) -> Any:
        """See `base.StreamDecoder`."""
        return completed_usage(reported, earlier)

    def _may_be_counted(self, usage: Any) -> bool:
        try:
            self.counted(usage)
        except ContradictoryUsage:
            return False
        return True

    def _added_up(self, usage: Any, *, is_apart: bool) -> Any:
        """Returns the usage of the request so far: `usage`, or a list with the usage of each choice.

        llama.cpp counts each choice separately, in a chunk without choices after the choice's finish. If such a chunk
        comes before all choices have finished, it cannot be a total: it and all later ones count one choice each.
        """
        if not is_apart or not self._finished:
            return usage
        if self._counted_apart or len(self._finished) < self._choices:
            self._counted_apart.append(usage)
        return usage if len(self._counted_apart) < 2 else [*self._counted_apart]


def _message_in(choice: dict[str, Any]) -> dict[str, Any]:
    """Takes the content out of a choice: its delta, the message that some servers send instead, or its text."""
    delta = choice.get("delta")
    if delta is None and "message" in choice:
        return object_of(choice.pop("message"))
    if delta is None and "text" in choice:
        return {"content": choice["text"], **{name: choice.pop(name) for name in REASONING_FIELDS if name in choice}}
    return object_of(delta)


def _words_of(deltas: Iterable[Delta]) -> Iterator[TextDelta | CallDelta]:
    return (each for each in deltas if isinstance(each, TextDelta | CallDelta))


def _share_out(extras: dict[str, Any], deltas: Sequence[Delta]) -> None:
    """Moves the other members of a choice to the delta that they belong to: its text, or else its finish or first."""
    words = (each for each in deltas if type(each) is TextDelta and each.name not in REASONING_FIELDS)
    spoken, last = next(words, deltas[0]), deltas[-1] if type(deltas[-1]) is FinishDelta else deltas[0]
    for name, value in extras.items():
        (spoken if name in WITH_WORDS else last).choice[name] = value


def measured_units_in(answer: Mapping[str, Any]) -> int | None:
    """Returns the energy that an answer or a chunk reports, in 10^-10 Wh: Neuralwatt's `energy`, GreenPT's `impact`."""
    if "energy" not in answer and "impact" not in answer:
        return None
    joules = object_of(answer.get("energy")).get("energy_joules")
    total = object_of(object_of(answer.get("impact")).get("energy"))
    watt_ms = total.get("total") if total.get("unit") == "Wms" else None
    for figure, per_wh in ((joules, 3600), (watt_ms, 3_600_000)):
        if isinstance(figure, int | float) and 0 < figure < MOST_MEASURED:
            units: int = round(figure / per_wh * UNITS)
            return units
    return None


def _messages(messages: list[dict[str, Any]], upstream: Upstream, dropped: DroppedFields) -> list[dict[str, Any]]:
    """Returns the messages without the role `developer` and without reasoning, if the upstream does not take these."""
    if not upstream.developer_role and "developer" in map(itemgetter("role"), messages):
        messages = [
            {**message, "role": "system"} if message["role"] == "developer" else message for message in messages
        ]
    if not upstream.reasoning_content and (thinking := [each for each in messages if not _THOUGHTS.isdisjoint(each)]):
        dropped |= {name: None for message in thinking for name in THOUGHTS if message.get(name)}
        messages = [without(message, THOUGHTS) for message in messages]
    return messages


def _drop_surplus(answer: dict[str, Any], expected: int) -> bool:
    """Removes choices beyond those that were asked for, and returns whether there were any.

    If there are none, `_number` numbers the choices.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list):
        return False
    if len(choices) <= expected:
        _number(dicts(choices), expected)
        return False
    kept = [
        choice
        for position, choice in enumerate(choices)
        if not isinstance(choice, dict) or type(index := choice.get("index", position)) is not int or index < expected
    ]
    if len(kept) == len(choices):
        return False
    answer["choices"] = kept
    return True


def _number(choices: Sequence[dict[str, Any]], expected: int) -> None:
    """Numbers choices by position, unless each has a distinct number below `expected`."""
    numbers = {number for each in choices if type(number := each.get("index")) is int and 0 <= number < expected}
    if len(numbers) < len(choices):
        for position, choice in enumerate(choices):
            choice["index"] = position
