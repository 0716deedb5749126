"""The OpenAI dialect: chat completions, which most providers speak, and responses (`/responses`), which some do."""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import orjson

from catalogue.pricing import ContradictoryUsage, Usage
from catalogue.routing.routes import Route, Upstream
from gateway.fastpath.faults import UpstreamFault
from gateway.fastpath.http_client import UpstreamRequest
from gateway.money import UNITS

from ..call import Call, Shape
from ..chunks import THOUGHTS
from ..finishes import failure_of
from ..words import dicts, object_of, without
from .base import (
    NOTHING,
    REROUTING_FIELDS,
    SURELY_SHALLOW,
    Event,
    Reply,
    StreamDecoder,
    Untold,
    check_object,
    counted_reply,
    encoded,
    headers_for,
    is_shallow,
    parse_object,
    refuse_fields,
    refuse_parameters,
    refuse_service_tier,
    refuse_storage,
    without_parameters,
)
from .errors import MalformedReply, ReportedError, report_of
from .openai_usage import completed_usage, prompt_usage_of, usage_of, usage_within

PATHS = {
    Shape.CHAT: "/chat/completions",
    Shape.COMPLETION: "/completions",
    Shape.EMBEDDING: "/embeddings",
    Shape.RESPONSES: "/responses",
}
# Members of a chunk that say something beside its choices.
TELLING = frozenset({"error", "type", "x_groq", "energy", "impact", "gateway_metadata"})
_THOUGHTS = frozenset(THOUGHTS)
SERVICE_TIERS = ("auto", "default")
ENDS_OF_A_RESPONSE = ("response.completed", "response.incomplete", "response.done")
MOST_MEASURED = 10**9  # joules or watt milliseconds: nothing that an answer can take
HEADERS = partial(headers_for, default_header="Authorization", default_scheme="Bearer")


class OpenAIDialect:
    """See `base.Dialect`."""

    own_shape, results_in_parts = Shape.RESPONSES, False

    def check(self, call: Call, route: Route) -> None:
        """Refuses routing fields of other gateways, priced service tiers, storage at the provider, and what the
        catalogue says that it answers with an error."""
        refuse_fields(call.body, REROUTING_FIELDS)
        refuse_service_tier(call, kept=SERVICE_TIERS)
        refuse_storage(call)
        refuse_parameters(call.body, route.upstream.refused_parameters)

    def check_form(self, call: Call, route: Route) -> None:
        """The client's form is this dialect's own."""

    def request(self, call: Call, route: Route) -> UpstreamRequest:
        """The client's fields as they came, with the upstream's model name and its one field for the cap."""
        taken, adjusted = without_parameters(call.body, route.upstream.refused_parameters)
        body: dict[str, Any] = {**taken, "model": route.upstream_model}
        untold = Untold()
        if call.shape == Shape.CHAT:
            body["messages"] = _messages(call.body["messages"], route.upstream, untold)
        passes = call.shape == Shape.RESPONSES
        if passes:
            body["store"] = False  # what is absent would be kept at the provider
        if call.max_tokens is not None:
            body["max_output_tokens" if passes else route.max_tokens_field] = call.max_tokens
        if call.stream:
            body["stream"] = True
            if route.upstream.stream_options and not passes:
                body["stream_options"] = {"include_usage": True}
        url = route.base_url.rstrip("/") + PATHS[call.shape]
        return UpstreamRequest(url, encoded(body), HEADERS(route.upstream), (*adjusted, *untold))

    def health_request(self, upstream: Upstream) -> UpstreamRequest:
        return UpstreamRequest(f"{upstream.base_url.rstrip('/')}/models", b"", HEADERS(upstream))

    def reply(self, body: bytes, call: Call, total_includes: Collection[str] = NOTHING) -> Reply:
        """The answer object, with its usage taken out."""
        answer = parse_object(body)
        is_embedding = call.shape == Shape.EMBEDDING
        count_usage = partial(self.usage, is_embedding=is_embedding, total_includes=total_includes)
        if call.shape == Shape.RESPONSES:
            return counted_reply(answer, answer.get("usage"), count_usage)
        surplus = _drop_surplus(answer, call.choices)
        if call.shape == Shape.CHAT:
            for choice in dicts(answer.get("choices")):
                # A filter takes what was answered, and has its price; else nothing was, and nothing is to be paid.
                if not object_of(choice.get("message")) and choice.get("finish_reason") != "content_filter":
                    raise MalformedReply("answered without a message")
        for choice in dicts(answer.get("choices")):
            if (failure := failure_of(choice)) is not None:
                raise ReportedError(report_of(failure))
        usage = answer.pop("usage", None)
        reply = counted_reply(answer, usage_within(answer) if usage is None else usage, count_usage)
        if reply.usage is None:
            reply.prompt_usage = prompt_usage_of(reply.reported)
        reply.measured_units = measured_units_in(answer)
        reply.is_malformed = surplus
        return reply

    def decoder(self, call: Call, total_includes: Collection[str] = NOTHING) -> StreamDecoder:
        """Remembers which of several choices have finished, and the usage of each where they are counted apart."""
        if call.shape == Shape.RESPONSES:
            return ResponseDecoder(total_includes)
        return OpenAIDecoder(call.choices, total_includes)

    def usage(self, reported: Any, *, is_embedding: bool, total_includes: Collection[str] = NOTHING) -> Usage | None:
        """The usage by `usage_of` and `prompt_usage_of`. An embedding's total is its prompt."""
        if not is_embedding:
            return usage_of(reported, total_includes)
        if isinstance(reported, dict) and reported.get("prompt_tokens") is None:
            reported = {**reported, "prompt_tokens": reported.get("total_tokens")}
        return prompt_usage_of(reported)


class OpenAIDecoder(StreamDecoder):
    """See `base.StreamDecoder`."""

    __slots__ = ("_choices", "_counted_apart", "_finished", "_total_includes")
    one_text = re.compile(
        rb'(?!.*"finish_reason": ?")'
        rb'(.*"choices": ?\[\{[^\[{]*"delta": ?\{"content": ?")[^"\\]+("\}[^\[{]*)'
    )

    def __init__(self, choices: int = 1, total_includes: Collection[str] = NOTHING) -> None:
        super().__init__()
        self._choices, self._total_includes = choices, total_includes
        self._finished: set[Any] = set()
        self._counted_apart: list[Any] = []

    def decode_all(self, events: list[bytes]) -> list[list[dict[str, Any]] | Event | UpstreamFault]:
        """See `base.StreamDecoder`. Of nearly every chunk nothing but its JSON has to be read here."""
        run: list[dict[str, Any]] = []
        said: list[list[dict[str, Any]] | Event | UpstreamFault] = [run]
        is_single, halves = self._choices == 1, self.half_characters
        for data in events:
            try:
                chunk = orjson.loads(data)
            except orjson.JSONDecodeError:
                chunk = None
            if (
                isinstance(chunk, dict)
                and not halves.held
                and TELLING.isdisjoint(chunk)
                and (len(data) <= 2 * SURELY_SHALLOW or is_shallow(data))
            ):
                if not is_single:
                    self._add_up(chunk)
                run.append(chunk)
            else:
                said += [*super().decode_all([data]), run := []]
        return said

    def decode(self, data: bytes) -> dict[str, Any] | Event | None:
        """A chunk, or `[DONE]`."""
        if data.strip() == b"[DONE]":
            return Event(is_last=True)
        chunk = parse_object(data, refuses=False)
        try:
            check_object(chunk, data)
        except ReportedError as error:
            self._add_up(chunk)
            usage = chunk.get("usage")
            if usage is None or not self._may_be_counted(usage):  # the error says more
                raise
            return Event(reported=usage, error=error)
        chunk.pop("gateway_metadata", None)
        if chunk.get("usage") is None and "x_groq" in chunk:
            chunk["usage"] = usage_within(chunk)
        self._add_up(chunk)
        measured = measured_units_in(chunk)
        return chunk if measured is None else Event(chunk, measured_units=measured)

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

    def _add_up(self, chunk: dict[str, Any]) -> None:
        """Makes the usage of a chunk that of the request so far, where a server may count each choice by itself.

        llama.cpp sends the usage of a choice in a chunk without choices, behind its finish: one that comes before all
        have finished can be no total. From then on every such chunk counts one more choice.
        """
        choices, usage = chunk.get("choices"), chunk.get("usage")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("finish_reason") and type(choice.get("index")) is int:
                self._finished.add(choice["index"])
        if usage is None or choices or not self._finished:
            return
        if self._counted_apart or len(self._finished) < self._choices:
            self._counted_apart.append(usage)
            if len(self._counted_apart) > 1:
                chunk["usage"] = list(self._counted_apart)


class ResponseDecoder(StreamDecoder):
    """See `base.StreamDecoder`. Chunks are the events of a response, the last of which has its usage."""

    __slots__ = ("_total_includes",)

    def __init__(self, total_includes: Collection[str] = NOTHING) -> None:
        super().__init__()
        self._total_includes = total_includes

    def decode(self, data: bytes) -> dict[str, Any] | Event | None:
        """An event, or `[DONE]`."""
        if data.strip() == b"[DONE]":
            return None
        event = parse_object(data)
        kind = event.get("type")
        if kind in ENDS_OF_A_RESPONSE:
            return Event(event, object_of(event.get("response")).get("usage"), is_last=True)
        if kind == "response.failed":
            response = object_of(event.get("response"))
            error = ReportedError(report_of({"error": response.get("error")}))
            if response.get("usage") is None:
                raise error
            return Event(reported=response["usage"], error=error)
        return event

    def counted(self, reported: Any) -> tuple[Usage | None, Usage | None]:
        """See `base.StreamDecoder`."""
        return usage_of(reported, self._total_includes), None


def measured_units_in(answer: Mapping[str, Any]) -> int | None:
    """The energy, in 10^-10 Wh, that an answer or a chunk says it took: Neuralwatt's `energy` or GreenPT's `impact`."""
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


def _messages(messages: list[dict[str, Any]], upstream: Upstream, untold: Untold) -> list[dict[str, Any]]:
    """The messages as the upstream takes them."""
    if not upstream.developer_role and "developer" in map(itemgetter("role"), messages):
        messages = [
            {**message, "role": "system"} if message["role"] == "developer" else message for message in messages
        ]
    if not upstream.reasoning_content and (thinking := [each for each in messages if not _THOUGHTS.isdisjoint(each)]):
        untold |= {name: None for message in thinking for name in THOUGHTS if message.get(name)}
        messages = [without(message, THOUGHTS) for message in messages]
    return messages


def _drop_surplus(answer: dict[str, Any], expected: int) -> bool:
    """Leaves out the choices beyond those that were asked for; whether there were any."""
    choices = answer.get("choices")
    if not isinstance(choices, list):
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
