"""A message request that came in Anthropic's own words: it goes as it came, and comes back event by event."""

from typing import Any

from catalogue.routes import Route

from ...call import Call
from ..base import Event, Reply, UpstreamRequest, counted_reply, encoded, headers_for, parse_object, without_parameters
from .answers import AnthropicDecoder, usage_of

VERSION = "2023-06-01"


def passed_request(call: Call, route: Route) -> UpstreamRequest:
    """The client's body with the upstream's model name. Its headers win over the dialect's, the provider's win over
    both."""
    taken, adjusted = without_parameters(call.body, route.upstream.refused_parameters)
    body: dict[str, Any] = {**taken, "model": route.upstream_model}
    if call.max_tokens is not None:
        body["max_tokens"] = call.max_tokens
    if call.stream:
        body["stream"] = True
    own = {"anthropic-version": VERSION, **call.headers}
    return UpstreamRequest(
        url=route.base_url.rstrip("/") + ("/messages/count_tokens" if call.counts else "/messages"),
        body=encoded(body),
        headers=headers_for(route.upstream, default_header="x-api-key", default_scheme="", own=own),
        adjusted=adjusted,
    )


def passed_reply(body: bytes) -> Reply:
    """The message as it came, its usage counted and left in it."""
    message = parse_object(body)
    return counted_reply(message, message.get("usage"), usage_of)


class PassingDecoder(AnthropicDecoder):
    """See `base.StreamDecoder`. Chunks are Anthropic's own events; a ping is none."""

    __slots__ = ()

    def decode(self, data: bytes) -> Event:
        """An event with its usage."""
        event = parse_object(data)
        kind = event.get("type")
        if kind == "content_block_delta":
            return Event(chunk=event)
        if kind in ("message_start", "message_delta"):
            counted = self._start(event) if kind == "message_start" else self._progress(event)
            counted.chunk = event
            return counted
        if kind == "message_stop":
            return Event(is_last=True)
        return Event(chunk=event) if isinstance(kind, str) and kind != "ping" else Event()
