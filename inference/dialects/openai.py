"""The OpenAI dialect: chat completions (`/chat/completions`), as spoken by most providers."""

from typing import Any

import orjson

from catalogue.pricing import ContradictoryUsage, Usage
from catalogue.routes import Route, Upstream
from gateway.errors import InvalidRequest

from ..call import Call, Endpoint
from .base import Event, MalformedReply, Reply, UpstreamFault, UpstreamRequest

PATHS = {Endpoint.CHAT: "/chat/completions", Endpoint.COMPLETION: "/completions", Endpoint.EMBEDDING: "/embeddings"}
# Fields that would change price, place or provider behind the gateway's back (contract section 4).
REFUSED_FIELDS = (
    "inference_geo",
    "provider",
    "providers",
    "models",
    "route",
    "transforms",
    "plugins",
    "web_search_options",
    "fallbacks",
)
SERVICE_TIERS = ("auto", "default")


class OpenAIDialect:
    """See `base.Dialect`."""

    refused_fields = REFUSED_FIELDS

    def check(self, call: Call) -> None:
        """Refuses routing fields of other gateways, priced service tiers and storage at the provider."""
        refuse_fields(call, self.refused_fields)
        if call.body.get("service_tier", "auto") not in SERVICE_TIERS:
            raise InvalidRequest(
                "service_tier: only 'auto' and 'default' keep the published price.", param="service_tier"
            )
        if call.body.get("store") not in (None, False):
            raise InvalidRequest("store: answers are not stored at a provider.", param="store")

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
            body=orjson.dumps(body),
            headers=headers_for(route.upstream, default_header="Authorization", default_scheme="Bearer"),
        )

    def reply(self, body: bytes, call: Call) -> Reply:
        """The answer object, with its usage taken out."""
        answer = parse_object(body)
        raise_error_object(answer)
        return Reply(answer, usage_of(answer.pop("usage", None)))

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
        return Event(chunk=chunk, usage=usage_of(chunk.pop("usage", None)))


def headers_for(upstream: Upstream, *, default_header: str, default_scheme: str) -> dict[str, str]:
    """The headers of an upstream call: nothing of the client's, the provider's extras, and the credential."""
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **upstream.extra_headers}
    if upstream.credential is not None:
        header = upstream.auth_header or default_header
        scheme = upstream.auth_scheme if upstream.auth_header else default_scheme
        headers[header] = f"{scheme} {upstream.credential}" if scheme else upstream.credential
    return headers


def refuse_fields(call: Call, names: tuple[str, ...]) -> None:
    """Raises InvalidRequest for the first of these fields that the client sent."""
    for name in names:
        if name in call.body:
            raise InvalidRequest(
                f"{name}: this field would change price, place or provider of a pinned request.", param=name
            )


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises MalformedReply."""
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise MalformedReply("answered with something that is not JSON") from None
    if not isinstance(parsed, dict):
        raise MalformedReply("answered with JSON that is not an object")
    return parsed


def raise_error_object(answer: dict[str, Any]) -> None:
    """An error where an answer belongs is an error, whatever the status said. Raises UpstreamFault."""
    if answer.get("error"):
        raise UpstreamFault(error_text(orjson.dumps(answer)) or "answered with an error")


def error_text(body: bytes) -> str:
    """The message in an error body of the many shapes in use; empty where there is none."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    while isinstance(parsed, dict):
        parsed = parsed.get("error") or parsed.get("message") or parsed.get("detail")
    return parsed if isinstance(parsed, str) else ""


def usage_of(reported: Any) -> Usage | None:
    """OpenAI's usage in disjoint buckets: `prompt_tokens` includes the cached ones (wire-notes 6).

    None where nothing was reported. Raises ContradictoryUsage.
    """
    if not isinstance(reported, dict) or reported.get("prompt_tokens") is None:
        return None
    prompt = count(reported["prompt_tokens"])
    completion = count(reported.get("completion_tokens") or 0)
    prompt_details = reported.get("prompt_tokens_details") or {}
    completion_details = reported.get("completion_tokens_details") or {}
    cache_read = optional_count(prompt_details.get("cached_tokens"))
    if (cache_read or 0) > prompt:
        raise ContradictoryUsage(f"{cache_read} cached of {prompt} prompt tokens")
    return Usage(
        uncached_prompt=prompt - (cache_read or 0),
        cache_read=cache_read,
        completion=completion,
        reasoning=optional_count(completion_details.get("reasoning_tokens")),
    )


def optional_count(value: Any) -> int | None:
    """A token count that may be absent."""
    return None if value is None else count(value)


def count(value: Any) -> int:
    """A token count. Raises ContradictoryUsage for anything but a whole number of zero or more."""
    if type(value) is not int or value < 0:
        raise ContradictoryUsage(f"a token count of {value!r}")
    return value
