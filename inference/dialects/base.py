"""What a dialect is, and what dialects share: headers, refusals, JSON that comes in, counts of tokens.

A dialect is pure functions from our call to theirs, and from their bytes to ours. A provider is data, a dialect is
code: a new one is a module here, a line in `settings.DIALECTS` and a test file.

Fields of a request that an upstream does not take are left out where they change nothing and refused where they do:
clients send many fields at their defaults. `USUAL` is the one table of those, by OpenAI's names; a dialect, or the
provider's entry in the catalogue, says which fields are not taken.
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
from ..deltas import Delta, End, Failure, Finish, Note, Unreadable, delta_of
from ..finishes import failure_of, finish_reason
from ..words import object_of
from . import odd_json
from .errors import MalformedReply, ReportedError, report_of

NEVER = re.compile(rb"(?!)()()")  # a `StreamDecoder.one_text`
NO_HEADERS: Mapping[str, str] = {}
NOTHING: frozenset[str] = frozenset()

# Fields that would change price, place or provider behind the gateway's back: those that choose a route, then others.
CHOOSING_FIELDS = ("provider", "providers", "models", "route", "fallbacks", "preset")
REROUTING_FIELDS = (
    *(*CHOOSING_FIELDS, "inference_geo", "transforms", "plugins", "web_search_options", "search_parameters"),
    *("api_base", "base_url", "api_key", "max_price"),
)
# Fields of the Messages API that do: servers and containers have a charge of their own, betas change prices and tools.
REFUSED_OF_MESSAGES = (*REROUTING_FIELDS, "container", "mcp_servers", "betas", "anthropic_beta")
SURELY_SHALLOW = 240  # opening brackets: nothing can be nested deeper than their number
MOST_TOKENS = 10**8  # of one request; beyond it an upstream has miscounted, and a bill would be absurd
# Values that ask for what every model does without the field.
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
# Fields that say nothing without another one, and their values that are no demand for it.
NOTHING_WITHOUT: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "function_call": ("functions", ("auto", "none")),
    "parallel_tool_calls": ("tools", (True, False)),
    "tool_choice": ("tools", ("auto", "none")),
}
# Fields that cost or save the provider something, or tell it who asks. No answer depends on them.
HINTS = frozenset({"metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user"})


@dataclass(slots=True)
class Reply:
    """A whole answer: OpenAI's shape with the upstream's own extra fields, and its usage where it reported any.

    `reported` is that usage in the upstream's own words; `prompt_usage` is the prompt's part, where that is all of it.
    `measured_units` is the energy that the upstream measured, in 10^-10 Wh. `is_malformed` where it held choices beyond
    those that were asked for, which are left out.
    """

    body: dict[str, Any]
    usage: Usage | None
    reported: Any = None
    prompt_usage: Usage | None = None
    measured_units: int | None = None
    is_malformed: bool = False


class Untold(dict[str, None]):
    """The names of what a translation has left out or changed, in their order: they are disclosed to the client.

    Fields at the top level go by their path, those within messages, blocks and tools by their own name.
    """

    def beyond(self, source: Mapping[str, Any], told: Collection[str]) -> None:
        """Takes in the fields of `source` that say something, but for those that the upstream is `told`."""
        for name, value in source.items():
            if value and name not in told:
                self[name] = None


class StreamDecoder(ABC):
    """Understands one stream; holds what its dialect needs to remember between events."""

    one_text = NEVER  # matches an event of one text and nothing else that adds up, with what is around it in two groups

    def __init__(self) -> None:
        self.unreadable: MalformedReply | None = None  # the newest event, if it could not be read
        self.half_characters = odd_json.HalfCharacters()

    def decode(self, events: Iterable[bytes]) -> list[Delta | Note]:
        """Returns what the events of one read say, in order, up to what ends the stream.

        The end is a `Failure` for an error of the upstream's, and for a second event in a row that cannot be read.
        """
        said: list[Delta | Note] = []
        for data in events:
            self.decode_one(data, said)
        return said

    def decode_one(self, data: bytes, said: list[Delta | Note], event: Any = None) -> None:
        """Adds to `said` what one event says, and what was held for it; `event` if it is parsed already."""
        before, self.unreadable = self.unreadable, None
        try:
            if event is None or self.half_characters.held:
                event = self._parsed(data)
            if type(event) is dict:
                self.read(event, data, said)
                return
            if len(lines := _events_in(data)) > 1:
                for line in lines:
                    self.decode_one(line, said)
                return
            for whole in self.half_characters.joined(data):
                if whole.strip().strip(b'"') == b"[DONE]":
                    said.append(End())
                elif not whole.lstrip().startswith(b":"):  # a comment that a relay has taken for data
                    self.read(parse_object(whole, refuses=False), whole, said)
        except MalformedReply as error:
            self.unreadable = error
            said.append(Unreadable(error) if before is None else Failure(error))
        except UpstreamFault as error:
            said.append(Failure(error))

    def _parsed(self, data: bytes) -> Any:
        """The JSON of an event; None if it has to be joined with another, or is read otherwise."""
        try:
            return None if self.half_characters.held else orjson.loads(data)
        except orjson.JSONDecodeError:
            return None

    @abstractmethod
    def read(self, event: dict[str, Any], data: bytes, said: list[Delta | Note]) -> None:
        """Adds to `said` what an event says, which came as `data`. It is the decoder's own, to change and pass on.

        Raises UpstreamFault for an error event and MalformedReply for nonsense.
        """

    @abstractmethod
    def counted(self, reported: Any) -> tuple[Usage | None, Usage | None]:
        """The usage that was reported, None where it is not all of it, and the prompt's part of that: what is billed of
        the prompt where the stream ends without the rest. Raises ContradictoryUsage.
        """

    def completed(self, reported: Any, earlier: Sequence[Any]) -> Any:
        """Completes the newest usage with what only an `earlier` one says; the newest of those comes first."""
        return reported


class Dialect(Protocol):
    """One wire language."""

    own_shape: Shape  # of calls, beside chats, that go upstream as they came
    results_in_parts: bool  # a tool's result may hold pictures and files

    def check(self, call: Call, route: Route) -> None:
        """Refuses fields that would move price, place or provider, and those that the upstream lacks and the answer
        depends on. Raises InvalidRequest with `param`."""

    def check_form(self, call: Call, route: Route) -> None:
        """Refuses a call that this dialect cannot translate, at the cost of `request`. Raises InvalidRequest."""

    def request(self, call: Call, route: Route) -> UpstreamRequest:
        """Our call in the upstream's words. Raises InvalidRequest as `check_form`."""

    def health_request(self, upstream: Upstream) -> UpstreamRequest:
        """A GET that costs nothing and needs the credential: of the upstream's models."""

    def empty_request(self, upstream: Upstream) -> UpstreamRequest:
        """A POST of a call without content, which costs nothing: an upstream refuses it for what it lacks."""

    def reply(self, body: bytes, call: Call, total_includes: Collection[str] = NOTHING) -> Reply:
        """A whole answer. `total_includes` is the provider's (`Upstream`). Raises as `StreamDecoder.decode`."""

    def decoder(self, call: Call, total_includes: Collection[str] = NOTHING) -> StreamDecoder:
        """A decoder for one streamed answer."""

    def usage(self, reported: Any, *, is_embedding: bool, total_includes: Collection[str] = NOTHING) -> Usage | None:
        """The usage that `Reply.reported` or `Event.reported` states; None where the request is not counted.

        Raises ContradictoryUsage.
        """


def headers_for(
    upstream: Upstream, *, default_header: str, default_scheme: str, own: Mapping[str, str] = NO_HEADERS
) -> dict[str, str]:
    """The headers of an upstream call: nothing of the client's, the dialect's own, the provider's extras (which may
    replace those), and the credential."""
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
    """Raises InvalidRequest for a service tier with a price of its own; those `kept` have the published one."""
    if call.body.get("service_tier", "auto") not in kept:
        names = " or ".join(repr(name) for name in kept)
        raise InvalidRequest.of_field("service_tier", f"must be {names}: other tiers have other prices.")


def refuse_storage(call: Call) -> None:
    """Raises InvalidRequest where the client wants its answer kept by the provider."""
    if call.body.get("store") not in (None, False):
        raise InvalidRequest.of_field("store", "must be false: answers are not stored at a provider.")


def encoded(body: Mapping[str, Any]) -> bytes:
    """The body of an upstream call. Raises InvalidRequest where the client nests deeper than can be written (254)."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        raise InvalidRequest("The request body is nested too deeply.") from None


def parse_object(data: bytes, *, refuses: bool = True) -> dict[str, Any]:
    """The JSON object of an answer or an event. Raises MalformedReply.

    An error where an answer belongs is an error, whatever the status said: raises ReportedError, if it `refuses` it.
    Google puts it in a list.
    """
    try:
        parsed = odd_json.loads(data)
    except ValueError:
        raise MalformedReply("answered with something that is not JSON") from None
    if isinstance(parsed, list) and parsed and "error" in object_of(parsed[0]):
        parsed = parsed[0]
    if not isinstance(parsed, dict):
        raise MalformedReply("answered with JSON that is not an object")
    if refuses:
        check_object(parsed, data)
    return parsed


def check_object(parsed: dict[str, Any], data: bytes) -> None:
    """Raises as `parse_object` for an object that was parsed."""
    if len(data) > 2 * SURELY_SHALLOW and not is_shallow(data):
        require_writable(parsed)
    if parsed.get("error") or is_named_error(parsed):
        raise ReportedError(report_of(parsed))


def check_words(answer: dict[str, Any]) -> None:
    """Raises ReportedError for what answers nothing, if it says why not in any of the ways that errors do."""
    report = report_of(answer)
    if report.words or report.trouble is not None:
        raise ReportedError(report)


def is_named_error(parsed: Mapping[str, Any]) -> bool:
    """Tells whether an object calls itself an error, by its type or as vLLM's older versions and SGLang do."""
    return parsed.get("type") == "error" or parsed.get("object") == "error"


def _events_in(data: bytes) -> list[bytes]:
    """The events of a stream that has no blank lines between them, so that all came as the lines of one."""
    lines = data.split(b"\n")
    return lines if all(line.startswith((b"{", b"[DONE]")) for line in lines) else []


def is_shallow(data: bytes) -> bool:
    """True for JSON that cannot be nested too deep to be written.

    What opens has to close again: in a short text, such as most chunks are, nothing needs to be counted.
    """
    if len(data) <= 2 * SURELY_SHALLOW:
        return True
    # `split` finds what is rare several times as fast as `count`.
    return len(data.split(b"[", SURELY_SHALLOW)) + len(data.split(b"{", SURELY_SHALLOW)) - 2 <= SURELY_SHALLOW


def require_writable(value: Any) -> None:
    """Raises MalformedReply for what is nested too deep for an answer, in which it may stand lower than it came."""
    try:
        orjson.dumps([[[[[[[[value]]]]]]]])  # it reads deeper than it writes (254)
    except orjson.JSONEncodeError:
        raise MalformedReply("answered with JSON that is nested too deep") from None


def counted_reply(answer: dict[str, Any], usage: Any, count_usage: Callable[[Any], Usage | None]) -> Reply:
    """An answer with its usage counted. Raises ContradictoryUsage that carries both."""
    try:
        return Reply(answer, count_usage(usage), usage)
    except ContradictoryUsage as error:
        error.answer, error.reported = answer, usage
        raise


def finish_of(index: int, choice: Mapping[str, Any]) -> Finish | Failure | None:
    """Returns how a choice ends, by its `finish_reason` and its `error`; None if it goes on."""
    failure = failure_of(choice)
    if failure is not None:
        return Failure(ReportedError(report_of(failure)))
    reason = finish_reason(choice.get("finish_reason"))
    if reason is None:
        return None
    finish = delta_of(Finish, index, {}, reason)
    finish.choice["finish_reason"] = reason
    return finish


def optional_count(value: Any) -> int | None:
    """A token count that may be absent."""
    return None if value is None else count(value)


def count(value: Any) -> int:
    """A token count. Raises ContradictoryUsage for anything but a whole number of zero or more that can be true."""
    if type(value) is not int or not 0 <= value <= MOST_TOKENS:
        raise ContradictoryUsage(f"a token count of {value!r}")
    return value


def changes_nothing(body: Mapping[str, Any], name: str) -> bool:
    """Whether the answer is the same without the field."""
    value = body[name]
    if _is_one_of(value, USUAL.get(name, ())):
        return True
    other, values = NOTHING_WITHOUT.get(name, ("", ()))
    return _is_one_of(value, values) and not body.get(other)


def refuse_parameters(body: Mapping[str, Any], names: Collection[str]) -> None:
    """Raises InvalidRequest for the first of these fields whose value would change the answer."""
    for name in body:
        if name in names and name not in HINTS and not changes_nothing(body, name):
            raise InvalidRequest.of_field(name, "asks for what this model does not take.")


def without_parameters(body: dict[str, Any], names: Collection[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields that an upstream takes, and the names of the hints that it does not get: they are disclosed."""
    if body.keys().isdisjoint(names):
        return body, ()
    kept = {name: value for name, value in body.items() if name not in names}
    return kept, tuple(name for name in body if name in names and name in HINTS)


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether it is there by type as well, as far as that matters: false is not 0."""
    return any(value == other and isinstance(value, bool) is isinstance(other, bool) for other in values)
