"""The OpenAI dialect: chat completions, which most providers speak, and responses (`/responses`), which some do."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from catalogue.pricing import ContradictoryUsage, Usage
from catalogue.routes import Route, Upstream
from gateway.money import UNITS

from ..call import Call, Shape
from ..chunks import THOUGHTS, dicts, object_of, without
from ..upstream.faults import MalformedReply, ReportedError
from .base import (
    REROUTING_FIELDS,
    Event,
    Reply,
    StreamDecoder,
    Untold,
    UpstreamRequest,
    count,
    counted_reply,
    encoded,
    headers_for,
    optional_count,
    parse_object,
    refuse_fields,
    refuse_parameters,
    refuse_service_tier,
    refuse_storage,
    without_parameters,
)
from .errors import report_of

PATHS = {
    Shape.CHAT: "/chat/completions",
    Shape.COMPLETION: "/completions",
    Shape.EMBEDDING: "/embeddings",
    Shape.RESPONSES: "/responses",
}
SERVICE_TIERS = ("auto", "default")
ENDS_OF_A_RESPONSE = ("response.completed", "response.incomplete")
NAMES_IN_A_RESPONSE = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "prompt_tokens_details": "input_tokens_details",
    "completion_tokens_details": "output_tokens_details",
}
# What an answer of ours, or of another gateway, may carry of its reasoning.
MOST_MEASURED = 10**9  # joules or watt milliseconds: nothing that an answer can take


class OpenAIDialect:
    """See `base.Dialect`."""

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
        return UpstreamRequest(
            url=route.base_url.rstrip("/") + PATHS[call.shape],
            body=encoded(body),
            headers=headers_for(route.upstream, default_header="Authorization", default_scheme="Bearer"),
            adjusted=(*adjusted, *untold),
        )

    def reply(self, body: bytes, call: Call) -> Reply:
        """The answer object, with its usage taken out."""
        answer = parse_object(body)
        if call.shape == Shape.RESPONSES:
            return counted_reply(answer, answer.get("usage"), usage_of)
        if call.shape == Shape.CHAT:
            for choice in dicts(answer.get("choices")):
                if not object_of(choice.get("message")):  # nothing was answered, and nothing is to be paid
                    raise MalformedReply("answered without a message")
        flatten_content(answer, "message")
        count_usage = prompt_usage_of if call.shape == Shape.EMBEDDING else usage_of
        reply = counted_reply(answer, answer.pop("usage", None), count_usage)
        if reply.usage is None:
            reply.prompt_usage = prompt_usage_of(reply.reported)
        reply.measured_units = measured_units_in(answer)
        return reply

    def decoder(self, call: Call) -> StreamDecoder:
        """Remembers which of several choices have finished, and the usage of each where they are counted apart."""
        return ResponseDecoder() if call.shape == Shape.RESPONSES else OpenAIDecoder(call.choices)

    def usage(self, reported: Any, *, is_embedding: bool) -> Usage | None:
        """See `usage_of` and `prompt_usage_of`."""
        return prompt_usage_of(reported) if is_embedding else usage_of(reported)


class OpenAIDecoder:
    """See `base.StreamDecoder`."""

    __slots__ = ("_choices", "_counted_apart", "_finished")

    def __init__(self, choices: int = 1) -> None:
        self._choices = choices
        self._finished: set[Any] = set()
        self._counted_apart: list[Any] = []

    def decode(self, data: bytes) -> Event:
        """A chunk, usage on any of them, or `[DONE]`."""
        if data == b"[DONE]":
            return Event(is_last=True)
        chunk = parse_object(data)
        flatten_content(chunk, "delta")
        usage = chunk.pop("usage", None)
        if self._choices > 1:
            usage = self._of_all_choices(chunk, usage)
        measured = measured_units_in(chunk)
        if usage is None:
            return Event(chunk, measured_units=measured)
        try:
            return Event(chunk, usage_of(usage), prompt_usage_of(usage), reported=usage, measured_units=measured)
        except ContradictoryUsage as error:
            error.reported = usage
            raise

    def _of_all_choices(self, chunk: dict[str, Any], usage: Any) -> Any:
        """The usage of the request so far, where a server may count each choice by itself.

        llama.cpp sends the usage of a choice in a chunk without choices, behind its finish: one that comes before all
        have finished can be no total. From then on every such chunk counts one more choice.
        """
        choices = dicts(chunk.get("choices"))
        self._finished.update(choice.get("index") for choice in choices if choice.get("finish_reason"))
        if usage is None or choices or not self._finished:
            return usage
        if self._counted_apart or len(self._finished) < self._choices:
            self._counted_apart.append(usage)
            return list(self._counted_apart) if len(self._counted_apart) > 1 else usage
        return usage


class ResponseDecoder:
    """See `base.StreamDecoder`. Chunks are the events of a response, the last of which has its usage."""

    __slots__ = ()

    def decode(self, data: bytes) -> Event:
        """An event, or `[DONE]`."""
        if data == b"[DONE]":
            return Event()
        event = parse_object(data)
        kind = event.get("type")
        if kind == "response.failed":
            raise ReportedError(report_of({"error": object_of(event.get("response")).get("error")}))
        if kind not in ENDS_OF_A_RESPONSE:
            return Event(event)
        usage = object_of(event.get("response")).get("usage")
        try:
            return Event(event, usage_of(usage), is_last=True, reported=usage)
        except ContradictoryUsage as error:
            error.reported = usage
            raise


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
    if not upstream.developer_role:
        messages = [
            {**message, "role": "system"} if message["role"] == "developer" else message for message in messages
        ]
    if not upstream.reasoning_content:
        for message in messages:
            untold |= {name: None for name in THOUGHTS if message.get(name)}
        messages = [without(message, THOUGHTS) for message in messages]
    return messages


def usage_of(reported: Any) -> Usage | None:
    """OpenAI's usage in disjoint buckets: `prompt_tokens` includes the cached and the written ones.

    A list holds the usage of each choice: they share one prompt, and their completions add up. Reasoning is part of the
    completion unless `total_tokens` says that it comes on top, as xAI counts. None where nothing was reported, or not
    both counts. Raises ContradictoryUsage.
    """
    if isinstance(reported, list):
        return _sum_of_choices([usage_of(each) for each in reported])
    reported = _as_of_chat(reported)
    prompt = prompt_usage_of(reported)
    if prompt is None or reported.get("completion_tokens") is None:
        return None
    completion = count(reported["completion_tokens"])
    reasoning = optional_count(_details(reported, "completion_tokens_details").get("reasoning_tokens"))
    total = reported.get("total_tokens")
    adds_up = type(total) is not int or total == prompt.prompt + completion
    if not adds_up and reasoning and total == prompt.prompt + completion + reasoning:
        completion, adds_up = completion + reasoning, True
    return Usage(prompt.uncached_prompt, prompt.cache_read, prompt.cache_write_5m, None, completion, reasoning, adds_up)


def prompt_usage_of(reported: Any) -> Usage | None:
    """The prompt's part of a usage; all there is of an embedding's. Raises ContradictoryUsage."""
    if isinstance(reported, list):
        return next(filter(None, map(prompt_usage_of, reported)), None)
    reported = _as_of_chat(reported)
    if not isinstance(reported, dict) or reported.get("prompt_tokens") is None:
        return None
    prompt = count(reported["prompt_tokens"])
    details = _details(reported, "prompt_tokens_details")
    cache_read = optional_count(details.get("cached_tokens"))
    written = optional_count(details.get("cache_write_tokens"))
    uncached = prompt - (cache_read or 0) - (written or 0)
    if uncached < 0:
        raise ContradictoryUsage(f"{cache_read} cached and {written} written of {prompt} prompt tokens")
    return Usage(uncached_prompt=uncached, cache_read=cache_read, cache_write_5m=written)


def _as_of_chat(reported: Any) -> Any:
    """The usage of a response under the names of a chat's."""
    if not isinstance(reported, dict) or "input_tokens" not in reported or "prompt_tokens" in reported:
        return reported
    return {name: reported[name_there] for name, name_there in NAMES_IN_A_RESPONSE.items() if name_there in reported}


def _sum_of_choices(counted: list[Usage | None]) -> Usage | None:
    """None where one was not counted."""
    usages = [usage for usage in counted if usage is not None]
    if len(usages) < len(counted) or not usages:
        return None
    reasoning = [usage.reasoning for usage in usages if usage.reasoning is not None]
    return replace(
        max(usages, key=lambda usage: usage.prompt),
        completion=sum(usage.completion for usage in usages),
        reasoning=sum(reasoning) if reasoning else None,
        adds_up=all(usage.adds_up for usage in usages),
    )


def _details(reported: dict[str, Any], name: str) -> dict[str, Any]:
    """A breakdown of a count; none where an upstream has something else under its name."""
    details = reported.get(name)
    return details if isinstance(details, dict) else {}


def flatten_content(answer: dict[str, Any], name: str) -> None:
    """Content that comes in blocks, as from Mistral's reasoning models, in the strings that OpenAI's clients know.

    Changes the message or the delta (`name`) of each choice whose content is an array of blocks.

    Text becomes `content`, thinking `reasoning_content` and a refusal `refusal`. What is said in no words (references,
    images) is left out.
    """
    for choice in dicts(answer.get("choices")):
        message = choice.get(name)
        if isinstance(message, dict) and isinstance(message.get("content"), list):
            for field, text in _text_by_field(message.pop("content")).items():
                # An upstream that fills the field as well says the same in two ways.
                message[field] = message.get(field) or text


def _text_by_field(blocks: list[Any]) -> dict[str, str]:
    """What the blocks say, by the field of a message that it belongs in."""
    texts: dict[str, str] = {}
    for field, text in map(_field_and_text, blocks):
        if text:
            texts[field] = texts.get(field, "") + text
    return texts


def _field_and_text(block: Any) -> tuple[str, str]:
    match block:
        case {"type": "thinking", "thinking": [*parts]}:
            return "reasoning_content", "".join(_field_and_text(part)[1] for part in parts)
        case {"type": "thinking", "thinking": str(text)}:
            return "reasoning_content", text
        case {"type": "refusal", "refusal": str(text)}:
            return "refusal", text
        case {"text": str(text)} | str(text):
            return "content", text
        case _:
            return "content", ""
