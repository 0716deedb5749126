"""Defines the interface of a dialect and what dialects share: headers, checks of fields, reading JSON, token counts.

A dialect holds pure functions that turn our call into the upstream's request and the upstream's bytes into our answer.
Providers are data and dialects are code: a new dialect needs a module here, a line in `settings.DIALECTS` and a test
file.

Clients send many fields with their default values. A field that an upstream does not take is therefore dropped if it
changes nothing, and refused otherwise. `USUAL` lists the values that change nothing, by OpenAI's field names. Which
fields an upstream does not take is set by its dialect and by the provider's entry in the catalogue.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from catalogue.pricing import ContradictoryUsage, Usage
from catalogue.routing.routes import Route, Upstream
from gateway.errors import InvalidRequest
from gateway.fastpath.faults import UpstreamFault
from gateway.fastpath.http_client import UpstreamRequest

from ..call import Call, Shape
from ..deltas import Delta, FinishDelta, Note, ReportedFailure, StreamEnd, UnreadableEvent, delta_of
from ..finishes import failure_of, finish_reason
from ..words import object_of
from . import odd_json
from .errors import MalformedReply, ReportedError, report_of

NEVER = re.compile(rb"(?!)()()")  # a `StreamDecoder.one_text` that matches no event
NO_HEADERS: Mapping[str, str] = {}
NOTHING: frozenset[str] = frozenset()

# Fields that would change price, place or provider without the gateway's knowledge: first those that choose a route.
CHOOSING_FIELDS = ("provider", "providers", "models", "route", "fallbacks", "preset")
REROUTING_FIELDS = (
    *CHOOSING_FIELDS,
    "inference_geo",
    "transforms",
    "plugins",
    "web_search_options",
    "search_parameters",
    "api_base",
    "base_url",
    "api_key",
    "max_price",
)
# The same for the Messages API: MCP servers and containers are charged separately, betas change prices and tools.
REFUSED_OF_MESSAGES = (*REROUTING_FIELDS, "container", "mcp_servers", "betas", "anthropic_beta")
SURELY_SHALLOW = 240  # opening brackets: JSON cannot be nested deeper than the number of its brackets
MOST_TOKENS = 10**8  # in one request; a larger count is an error of the upstream's and would make an absurd bill
# Values that mean the same as leaving the field out.
USUAL: Mapping[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"], []),
    "n": (1,),
    "parallel_tool_calls": (True,),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "stop": ([],),
    "store": (False,),
    "suffix": ("",),
    "temperature": (1,),
    "tool_choice": ("auto",),
    "tools": ([],),
    "top_logprobs": (0,),
    "top_p": (1,),
    "verbosity": ("medium",),
}
# Fields that have no effect without another field: that field, and the values that are harmless without it.
NOTHING_WITHOUT: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "function_call": ("functions", ("auto", "none")),
    "parallel_tool_calls": ("tools", (True, False)),
    "tool_choice": ("tools", ("auto", "none")),
}
# Fields for the provider's caching and abuse detection. They do not change the answer.
HINTS = frozenset({"metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user"})


@dataclass(slots=True)
class UpstreamAnswer:
    """Holds a whole answer in OpenAI's shape, with the upstream's extra fields, and the usage if one was reported.

    `reported` is the usage as the upstream wrote it. `prompt_usage` is set if only the prompt was counted.
    `measured_units` is the energy that the upstream measured, in 10^-10 Wh. `is_malformed` is set if the answer held
    more choices than were asked for; these are left out.
    """

    body: dict[str, Any]
    usage: Usage | None
    reported: Any = None
    prompt_usage: Usage | None = None
    measured_units: int | None = None
    is_malformed: bool = False


class DroppedFields(dict[str, None]):
    """Collects, in order, the names of the fields that a translation left out or changed, to disclose them to clients.

    A field at the top level is listed by its path, one within messages, blocks or tools by its own name.
    """

    def add_unhandled(self, source: Mapping[str, Any], handled: Collection[str]) -> None:
        """Adds the fields of `source` that are neither empty nor `handled` by the translation."""
        for name, value in source.items():
            if value and name not in handled:
                self[name] = None


class StreamDecoder(ABC):
    """Turns the events of one stream into deltas. A subclass keeps what its dialect must remember between events."""

    # Matches an event that holds one text and nothing else that accumulates; two groups match what surrounds the text.
    one_text = NEVER

    def __init__(self) -> None:
        self.unreadable: MalformedReply | None = None  # set if the newest event could not be read
        self.half_characters = odd_json.HalfCharacters()

    def decode(self, events: Iterable[bytes]) -> list[Delta | Note]:
        """Returns the deltas and notes of the events of one read, in order, up to what ends the stream.

        An error of the upstream's, or a second unreadable event in a row, ends the stream with a `ReportedFailure`.
        """
        out: list[Delta | Note] = []
        for data in events:
            self.decode_one(data, out)
        return out

    def decode_one(self, data: bytes, out: list[Delta | Note], event: Any = None) -> None:
        """Adds the deltas and notes of one event to `out`. `event` is the parsed data, if it has been parsed.

        Data that cannot be read alone is joined with what was held back from earlier events.
        """
        before, self.unreadable = self.unreadable, None
        try:
            if event is None or self.half_characters.held:
                event = self._parsed(data)
            if type(event) is dict:
                self.read(event, data, out)
                return
            if len(lines := _events_in(data)) > 1:
                for line in lines:
                    self.decode_one(line, out)
                return
            for whole in self.half_characters.joined(data):
                if whole.strip().strip(b'"') == b"[DONE]":
                    out.append(StreamEnd())
                elif not whole.lstrip().startswith(b":"):  # an SSE comment that a relay has sent on as data
                    self.read(parse_object(whole, raises_reported=False), whole, out)
        except MalformedReply as error:
            self.unreadable = error
            out.append(UnreadableEvent(error) if before is None else ReportedFailure(error))
        except UpstreamFault as error:
            out.append(ReportedFailure(error))

    def _parsed(self, data: bytes) -> Any:
        """Parses an event's JSON. Returns None if it must be joined with another event or needs special reading."""
        try:
            return None if self.half_characters.held else orjson.loads(data)
        except orjson.JSONDecodeError:
            return None

    @abstractmethod
    def read(self, event: dict[str, Any], data: bytes, out: list[Delta | Note]) -> None:
        """Adds the deltas and notes of an event to `out`. `data` is the event as it was received.

        The decoder owns `event`, and may change it in place and pass it on. Raises UpstreamFault for an error event and
        MalformedReply for one that makes no sense.
        """

    @abstractmethod
    def counted(self, reported: Any) -> tuple[Usage | None, Usage | None]:
        """Returns the reported usage, or None if it is incomplete, and the part of it that counts the prompt.

        The prompt's part is billed if the stream ends before the rest is reported. Raises ContradictoryUsage.
        """

    def completed(self, reported: Any, earlier: Sequence[Any]) -> Any:
        """Adds what only the `earlier` reports contain to the newest one. `earlier` begins with the newest of them."""
        return reported


class Dialect(Protocol):
    """Translates calls and answers for one API that upstreams speak."""

    own_shape: Shape  # calls of this shape are sent untranslated, in addition to chats
    results_in_parts: bool  # a tool's result may hold pictures and files

    def check(self, call: Call, route: Route) -> None:
        """Raises InvalidRequest, with `param`, for a field that must not be sent on.

        Such a field would change price, place or provider, or is one that the upstream lacks and the answer depends on.
        """

    def check_form(self, call: Call, route: Route) -> None:
        """Raises InvalidRequest if this dialect cannot translate the call. Takes as long as `request`."""

    def request(self, call: Call, route: Route) -> UpstreamRequest:
        """Translates our call into the upstream's request. Raises InvalidRequest like `check_form`."""

    def health_request(self, upstream: Upstream) -> UpstreamRequest:
        """Returns a GET of the upstream's models, which is free and needs the credential."""

    def empty_request(self, upstream: Upstream) -> UpstreamRequest:
        """Returns a POST of a call without content, which is free because the upstream refuses it as incomplete."""

    def reply(self, body: bytes, call: Call, total_includes: Collection[str] = NOTHING) -> UpstreamAnswer:
        """Reads a whole answer. `total_includes` comes from the provider's entry (`Upstream`).

        Raises UpstreamFault, MalformedReply and ContradictoryUsage.
        """

    def decoder(self, call: Call, total_includes: Collection[str] = NOTHING) -> StreamDecoder:
        """Returns a decoder for one streamed answer."""

    def usage(self, reported: Any, *, is_embedding: bool, total_includes: Collection[str] = NOTHING) -> Usage | None:
        """Returns the usage in `UpstreamAnswer.reported` or `UsageReport.reported`; None if the request is not counted.

        Raises ContradictoryUsage.
        """


def headers_for(
    upstream: Upstream, *, default_header: str, default_scheme: str, own: Mapping[str, str] = NO_HEADERS
) -> dict[str, str]:
    """Builds the headers of an upstream call; no header of the client's is sent on.

    The provider's extra headers may replace the dialect's `own`. The credential comes last.
    """
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **own, **upstream.extra_headers}
    if upstream.credential is not None:
        header = upstream.auth_header or default_header
        scheme = upstream.auth_scheme if upstream.auth_header else default_scheme
        headers[header] = f"{scheme} {upstream.credential}" if scheme else upstream.credential
    return headers


def refuse_fields(body: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raises InvalidRequest for the first of these fields that the client sent."""
    for name in names:
        if name in body:
            rule = "would change price, place or provider of a pinned request"
            way_out = ": `model` says which route serves, and `auto/{creator}/{model}` chooses among all providers."
            raise InvalidRequest.of_field(name, rule + (way_out if name in CHOOSING_FIELDS else "."))


def refuse_service_tier(call: Call, *, kept: Iterable[str]) -> None:
    """Raises InvalidRequest for a service tier that is not among `kept`, those at the published price."""
    if call.body.get("service_tier", "auto") not in kept:
        names = " or ".join(repr(name) for name in kept)
        raise InvalidRequest.of_field("service_tier", f"must be {names}: other tiers have other prices.")


def refuse_storage(call: Call) -> None:
    """Raises InvalidRequest if the client asks the provider to store the answer."""
    if call.body.get("store") not in (None, False):
        raise InvalidRequest.of_field("store", "must be false: the gateway does not let providers store answers.")


def encoded(body: Mapping[str, Any] | list[Any]) -> bytes:
    """Encodes the body of an upstream call. Raises InvalidRequest if it is nested more than 254 levels deep."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        raise InvalidRequest("The request body is nested too deeply.") from None


def parse_object(data: bytes, *, raises_reported: bool = True) -> dict[str, Any]:
    """Parses the JSON object of an answer or an event. Raises MalformedReply if it is not one.

    If `raises_reported`, raises ReportedError for an error object in the place of an answer, whatever the status was.
    Google wraps errors in a list.
    """
    try:
        parsed = odd_json.loads(data)
    except ValueError:
        raise MalformedReply("returned invalid JSON") from None
    if isinstance(parsed, list) and parsed and "error" in object_of(parsed[0]):
        parsed = parsed[0]
    if not isinstance(parsed, dict):
        raise MalformedReply("answered with JSON that is not an object")
    if raises_reported:
        check_object(parsed, data)
    return parsed


def check_object(parsed: dict[str, Any], data: bytes) -> None:
    """Raises MalformedReply if a parsed object is nested too deep, ReportedError if it is an error."""
    if len(data) > 2 * SURELY_SHALLOW and not is_shallow(data):
        require_writable(parsed)
    if parsed.get("error") or is_named_error(parsed):
        raise ReportedError(report_of(parsed))


def check_words(answer: dict[str, Any]) -> None:
    """Raises ReportedError if an object that holds no answer has an error's message in any of the usual forms."""
    report = report_of(answer)
    if report.words or report.trouble is not None:
        raise ReportedError(report)


def is_named_error(parsed: Mapping[str, Any]) -> bool:
    """Tells whether an object is an error by its `type`, or by its `object` as in SGLang and older versions of vLLM."""
    return parsed.get("type") == "error" or parsed.get("object") == "error"


def _events_in(data: bytes) -> list[bytes]:
    """Splits the events of a stream that has no blank lines between them, so that they arrive as one event's lines."""
    lines = data.split(b"\n")
    return lines if all(line.startswith((b"{", b"[DONE]")) for line in lines) else []


def is_shallow(data: bytes) -> bool:
    """Tells whether JSON is certainly not nested too deep to be written."""
    # Every bracket has to be closed, so a short text, as most chunks are, needs no counting.
    if len(data) <= 2 * SURELY_SHALLOW:
        return True
    # For rare characters `split` is several times as fast as `count`.
    return len(data.split(b"[", SURELY_SHALLOW)) + len(data.split(b"{", SURELY_SHALLOW)) - 2 <= SURELY_SHALLOW


def require_writable(value: Any) -> None:
    """Raises MalformedReply if a value is nested too deep to be written, even up to eight levels down in an answer."""
    try:
        orjson.dumps([[[[[[[[value]]]]]]]])  # orjson reads deeper than the 254 levels that it writes
    except orjson.JSONEncodeError:
        raise MalformedReply("answered with JSON that is nested too deep") from None


def counted_reply(answer: dict[str, Any], usage: Any, count_usage: Callable[[Any], Usage | None]) -> UpstreamAnswer:
    """Returns an answer with its usage counted. A ContradictoryUsage that is raised carries both."""
    try:
        return UpstreamAnswer(answer, count_usage(usage), usage)
    except ContradictoryUsage as error:
        error.answer, error.reported = answer, usage
        raise


def finish_of(index: int, choice: Mapping[str, Any]) -> FinishDelta | ReportedFailure | None:
    """Returns the end of a choice, from its `error` or its `finish_reason`; None if the choice goes on."""
    failure = failure_of(choice)
    if failure is not None:
        return ReportedFailure(ReportedError(report_of(failure)))
    reason = finish_reason(choice.get("finish_reason"))
    if reason is None:
        return None
    finish = delta_of(FinishDelta, index, {}, reason)
    finish.choice["finish_reason"] = reason
    return finish


def optional_count(value: Any) -> int | None:
    """Returns a token count, or None if it is absent. Raises like `count`."""
    return None if value is None else count(value)


def count(value: Any) -> int:
    """Returns a token count. Raises ContradictoryUsage unless it is a whole number from 0 to MOST_TOKENS."""
    if type(value) is not int or not 0 <= value <= MOST_TOKENS:
        raise ContradictoryUsage(f"a token count of {value!r}")
    return value


def changes_nothing(body: Mapping[str, Any], name: str) -> bool:
    """Tells whether the answer would be the same without the field."""
    value = body[name]
    if _is_one_of(value, USUAL.get(name, ())):
        return True
    other, values = NOTHING_WITHOUT.get(name, ("", ()))
    return _is_one_of(value, values) and not body.get(other)


def refuse_parameters(body: Mapping[str, Any], names: Collection[str]) -> None:
    """Raises InvalidRequest for the first of these fields whose value would change the answer."""
    for name in body:
        if name in names and name not in HINTS and not changes_nothing(body, name):
            raise InvalidRequest.of_field(name, "asks for something that this model does not support.")


def without_parameters(body: dict[str, Any], names: Collection[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns `body` without these fields, and the names of the hints among those dropped, to disclose them."""
    if body.keys().isdisjoint(names):
        return body, ()
    kept = {name: value for name, value in body.items() if name not in names}
    return kept, tuple(name for name in body if name in names and name in HINTS)


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    # In Python `False == 0`, but in JSON they differ.
    return any(value == other and isinstance(value, bool) is isinstance(other, bool) for other in values)
