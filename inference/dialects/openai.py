"""The OpenAI dialect: chat completions (`/chat/completions`), as spoken by most providers."""

from dataclasses import replace
from typing import Any

from catalogue.pricing import ContradictoryUsage, Usage
from catalogue.routes import Route

from ..call import Call, Endpoint
from .base import Event, Reply, UpstreamRequest
from .common import (
    REROUTING_FIELDS,
    count,
    counted_reply,
    encoded,
    error_text,
    headers_for,
    optional_count,
    parse_object,
    raise_error_object,
    refuse_fields,
    refuse_service_tier,
    refuse_storage,
)
from .openai_blocks import put_in_words

PATHS = {Endpoint.CHAT: "/chat/completions", Endpoint.COMPLETION: "/completions", Endpoint.EMBEDDING: "/embeddings"}
SERVICE_TIERS = ("auto", "default")


class OpenAIDialect:
    """See `base.Dialect`."""

    def check(self, call: Call) -> None:
        """Refuses routing fields of other gateways, priced service tiers and storage at the provider."""
        refuse_fields(call, REROUTING_FIELDS)
        refuse_service_tier(call, kept=SERVICE_TIERS)
        refuse_storage(call)

    def request(self, call: Call, route: Route) -> UpstreamRequest:
        """The client's fields as they came, with the upstream's model name and its one field for the cap."""
        body: dict[str, Any] = {**call.body, "model": route.upstream_model}
        if call.max_tokens is not None:
            body[route.max_tokens_field] = call.max_tokens
        if call.stream:
            body["stream"] = True
            if route.upstream.stream_options:
                body["stream_options"] = {"include_usage": True}
        return UpstreamRequest(
            url=route.base_url.rstrip("/") + PATHS[call.endpoint],
            body=encoded(body),
            headers=headers_for(route.upstream, default_header="Authorization", default_scheme="Bearer"),
        )

    def reply(self, body: bytes, call: Call) -> Reply:
        """The answer object, with its usage taken out."""
        answer = parse_object(body)
        raise_error_object(answer)
        put_in_words(answer, "message")
        count_usage = prompt_usage_of if call.endpoint == Endpoint.EMBEDDING else usage_of
        return counted_reply(answer, answer.pop("usage", None), count_usage)

    def decoder(self, call: Call) -> "OpenAIDecoder":
        """OpenAI's events need no memory."""
        return OpenAIDecoder()

    def error_message(self, body: bytes) -> str:
        """`error.message`, or one of the places where compatible servers put it."""
        return error_text(body)


class OpenAIDecoder:
    """See `base.StreamDecoder`."""

    __slots__ = ()

    def decode(self, data: bytes) -> Event:
        """A chunk, usage on any of them, or `[DONE]`."""
        if data == b"[DONE]":
            return Event(is_last=True)
        chunk = parse_object(data)
        raise_error_object(chunk)
        put_in_words(chunk, "delta")
        usage = chunk.pop("usage", None)
        if usage is None:
            return Event(chunk)
        return Event(chunk, usage_of(usage), prompt_usage_of(usage))


def usage_of(reported: Any) -> Usage | None:
    """OpenAI's usage in disjoint buckets: `prompt_tokens` includes the cached ones (wire-notes 6).

    None where nothing was reported, or not both counts. Raises ContradictoryUsage.
    """
    prompt = prompt_usage_of(reported)
    if prompt is None or reported.get("completion_tokens") is None:
        return None
    reasoning = _details(reported, "completion_tokens_details").get("reasoning_tokens")
    return replace(prompt, completion=count(reported["completion_tokens"]), reasoning=optional_count(reasoning))


def prompt_usage_of(reported: Any) -> Usage | None:
    """The prompt's part of a usage; all there is of an embedding's. Raises ContradictoryUsage."""
    if not isinstance(reported, dict) or reported.get("prompt_tokens") is None:
        return None
    prompt = count(reported["prompt_tokens"])
    cache_read = optional_count(_details(reported, "prompt_tokens_details").get("cached_tokens"))
    if (cache_read or 0) > prompt:
        raise ContradictoryUsage(f"{cache_read} cached of {prompt} prompt tokens")
    return Usage(uncached_prompt=prompt - (cache_read or 0), cache_read=cache_read)


def _details(reported: dict[str, Any], name: str) -> dict[str, Any]:
    """A breakdown of a count; none where an upstream has something else under its name."""
    details = reported.get(name)
    return details if isinstance(details, dict) else {}
