"""Implements the dialect of Anthropic's Messages API (`/messages`), `anthropic-version: 2023-06-01`."""

from collections.abc import Collection, Mapping
from typing import Any

from catalogue.pricing import Usage
from catalogue.routing.routes import Route, Upstream
from gateway.errors import InvalidRequest
from gateway.fastpath.http_client import UpstreamRequest

from ...call import Call, Shape
from ...finishes import failure_of
from ..base import (
    HINTS,
    NO_HEADERS,
    NOTHING,
    REFUSED_OF_MESSAGES,
    DroppedFields,
    UpstreamAnswer,
    check_words,
    counted_reply,
    encoded,
    headers_for,
    parse_object,
    refuse_fields,
    refuse_parameters,
    refuse_service_tier,
    refuse_storage,
    without_parameters,
)
from ..errors import MalformedReply, ReportedError, report_of
from .answers import AnthropicDecoder, PassingDecoder, answer_of, usage_of
from .requests import Block, Conversation, check_output, conversation, output_of, require_function, text_blocks
from .schemas import simplified, wants_json

VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 4096  # the API requires the field; used if the route's own limit is unknown
MAX_TEMPERATURE = 1
# OpenAI's `default` is what Anthropic calls `standard_only`.
SERVICE_TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
SPEEDS = (None, "standard")
# OpenAI's fields that the API lacks. Values that change the answer are refused.
LACKING = frozenset(
    {"audio", "best_of", "echo", "function_call", "functions", "logit_bias", "logprobs", "modalities", "seed", "suffix"}
    | {"top_logprobs", "verbosity", "presence_penalty", "frequency_penalty"}
)
HINTS_LEFT_OUT = HINTS - {"metadata", "safety_identifier", "user"}
# The fields that this module handles; every other field goes upstream unchanged.
TRANSLATED = frozenset(
    {"messages", "system", "tools", "tool_choice", "parallel_tool_calls", "stop", "n", "temperature", "service_tier"}
    | {"store", "reasoning_effort", "response_format", *LACKING, *HINTS}
)
EMPTY_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
ONLY_JSON: Mapping[str, Any] = {
    "type": "text",
    "text": "Answer with one JSON object and nothing else: no words around it and no Markdown fence.",
}
TOOL_CHOICES = {"none": "none", "auto": "auto", "required": "any"}


class AnthropicDialect:
    """See `base.Dialect`. A call in Anthropic's own shape is passed on (`_passed`). A chat has four groups of fields:

    - Fields with a counterpart are translated; a temperature above 1 is sent as 1 and disclosed.
    - Fields that would change price, place or provider are refused.
    - Other fields of OpenAI's that the API lacks (`LACKING`) are left out if they change nothing, else refused. Hints,
      on which no answer depends, are left out and disclosed.
    - All other fields (`thinking`, `top_k`, …) are sent unchanged. Anthropic refuses those that it does not know, and
      the client gets its message, which is better than a field that silently does nothing.
    """

    own_shape, results_in_parts = Shape.MESSAGES, True

    def check(self, call: Call, route: Route) -> None:
        """See `base.Dialect`. Also refuses embeddings and several choices, which the API does not offer."""
        if call.shape == Shape.MESSAGES:  # the wire form has checked the rest
            refuse_parameters(call.body, route.upstream.refused_parameters)
            return
        if call.shape == Shape.EMBEDDING or "messages" not in call.body:
            raise InvalidRequest.of_field("model", "must be of another provider: this one offers only chat.")
        refuse_fields(call.body, REFUSED_OF_MESSAGES)
        refuse_service_tier(call, kept=tuple(SERVICE_TIERS))
        refuse_storage(call)
        if call.body.get("speed") not in SPEEDS:
            raise InvalidRequest.of_field("speed", "must be 'standard': other speeds have other prices.")
        if call.choices > 1:
            raise InvalidRequest.of_field("n", "must be 1: this model gives one choice per request.")
        refuse_parameters(call.body, LACKING | route.upstream.refused_parameters)
        check_output(call.body)

    def check_form(self, call: Call, route: Route) -> None:
        """See `base.Dialect`."""
        if call.shape != Shape.MESSAGES:
            self.request(call, route)

    def request(self, call: Call, route: Route) -> UpstreamRequest:
        """Translates a chat into a Messages request. Raises InvalidRequest for messages that cannot be translated."""
        if call.shape == Shape.MESSAGES:
            return _passed(call, route)
        chat = conversation(call.body["messages"])
        dropped = chat.dropped
        body: dict[str, Any] = {
            "model": route.upstream_model,
            "max_tokens": call.max_tokens or route.max_output_tokens or DEFAULT_MAX_TOKENS,
            **_chat(call.body, chat),
            **_tools(call.body, dropped),
            **_settings(call.body),
        }
        output = output_of(call.body, route.thinking, body)
        body |= {name: value for name, value in call.body.items() if name not in TRANSLATED} | output.fields
        for name in (*output.left_out, *route.upstream.refused_parameters):
            body.pop(name, None)
        if call.stream:
            body["stream"] = True
        return UpstreamRequest(
            url=route.base_url.rstrip("/") + "/messages",
            body=encoded(body),
            headers=_headers(route.upstream),
            adjusted=(*_adjusted(call.body), *output.adjusted, *dropped),
        )

    def health_request(self, upstream: Upstream) -> UpstreamRequest:
        return UpstreamRequest(f"{upstream.base_url.rstrip('/')}/models", b"", _headers(upstream))

    def empty_request(self, upstream: Upstream) -> UpstreamRequest:
        return UpstreamRequest(f"{upstream.base_url.rstrip('/')}/messages", b"{}", _headers(upstream))

    def reply(self, body: bytes, call: Call, total_includes: Collection[str] = NOTHING) -> UpstreamAnswer:
        """Turns the message into a chat completion without its usage; unchanged if the client speaks Messages."""
        message = parse_object(body)
        if (failure := failure_of({"finish_reason": message.get("stop_reason")})) is not None:
            raise ReportedError(report_of(failure))
        if not isinstance(message.get("content"), list) and not call.is_count:
            check_words(message)
            raise MalformedReply("answered without content")
        if call.shape == Shape.MESSAGES:
            return counted_reply(message, message.get("usage"), usage_of)
        usage = message.pop("usage", None)
        return counted_reply(answer_of(message), usage, usage_of)

    def decoder(self, call: Call, total_includes: Collection[str] = NOTHING) -> AnthropicDecoder:
        """See `base.Dialect`."""
        return PassingDecoder() if call.shape == Shape.MESSAGES else AnthropicDecoder()

    def usage(self, reported: Any, *, is_embedding: bool, total_includes: Collection[str] = NOTHING) -> Usage | None:
        """See `answers.usage_of`."""
        return usage_of(reported)


def _headers(upstream: Upstream, more: Mapping[str, str] = NO_HEADERS) -> dict[str, str]:
    own = {"anthropic-version": VERSION, **more}
    return headers_for(upstream, default_header="x-api-key", default_scheme="", own=own)


def _passed(call: Call, route: Route) -> UpstreamRequest:
    """Builds the request from the client's body, with the upstream's model name.

    The client's headers override the dialect's; the provider's override both.
    """
    taken, adjusted = without_parameters(call.body, route.upstream.refused_parameters)
    body: dict[str, Any] = {**taken, "model": route.upstream_model}
    if call.max_tokens is not None:
        body["max_tokens"] = call.max_tokens
    if call.stream:
        body["stream"] = True
    return UpstreamRequest(
        url=route.base_url.rstrip("/") + ("/messages/count_tokens" if call.is_count else "/messages"),
        body=encoded(body),
        headers=_headers(route.upstream, call.headers),
        adjusted=adjusted,
    )


def _chat(body: Mapping[str, Any], chat: Conversation) -> Block:
    """Returns `messages`, and `system` if there is any; the client's own top-level `system` comes first."""
    own = body.get("system", [])
    if not isinstance(own, str | list):
        raise InvalidRequest.of_field("system", "must be a string or an array of content blocks.")
    system = [*text_blocks(own), *chat.system, *([ONLY_JSON] if wants_json(body) else ())]
    return {"messages": chat.messages, **({"system": system} if system else {})}


def _tools(body: Mapping[str, Any], dropped: DroppedFields) -> Block:
    """Returns `tools` and `tool_choice`. The latter forbids parallel calls, unless it is `none`, which cannot say so.

    Without tools the API refuses any choice, so one that does not demand a call is left out.
    """
    tools = [_tool(tool, f"tools[{position}]", dropped) for position, tool in enumerate(body.get("tools") or [])]
    choice = _tool_choice(body.get("tool_choice"))
    if tools and body.get("parallel_tool_calls") is False and choice.get("type") != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    if not tools and choice.get("type") in ("none", "auto"):
        choice = {}
    return {**({"tools": tools} if tools else {}), **({"tool_choice": choice} if choice else {})}


def _tool(tool: Mapping[str, Any], path: str, dropped: DroppedFields) -> Block:
    """Merges the two levels of OpenAI's tool into one; extra fields such as `cache_control` are kept."""
    require_function(tool, path)
    function = {name: value for name, value in tool["function"].items() if value is not None}
    schema = function.pop("parameters", None) or EMPTY_SCHEMA
    if function.get("strict") is True:
        schema = simplified(schema, dropped)
    elif function.get("strict") is False:
        del function["strict"]
    extras = {name: value for name, value in tool.items() if name not in ("type", "function")}
    return {**extras, **function, "input_schema": schema}


def _tool_choice(choice: Any) -> Block:
    if choice is None:
        return {}
    if isinstance(choice, str):
        return {"type": TOOL_CHOICES[choice]}
    require_function(choice, "tool_choice")
    return {"type": "tool", "name": choice["function"]["name"]}


def _settings(body: Mapping[str, Any]) -> Block:
    """Returns the fields that have another name or other bounds in this API."""
    settings: Block = {}
    if stop := body.get("stop"):
        settings["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if (temperature := body.get("temperature")) is not None:
        settings["temperature"] = min(temperature, MAX_TEMPERATURE)
    if (metadata := _metadata(body)) is not None:
        settings["metadata"] = metadata
    if (tier := body.get("service_tier")) is not None:
        settings["service_tier"] = SERVICE_TIERS[tier]
    return settings


def _metadata(body: Mapping[str, Any]) -> Block | None:
    """Returns the user that `metadata`, `user` or `safety_identifier` names. Other metadata is for stored answers."""
    metadata = body.get("metadata")
    named = metadata.get("user_id") if isinstance(metadata, dict) else None
    user = named or body.get("user") or body.get("safety_identifier")
    return None if user is None else {"user_id": user}


def _adjusted(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of fields that are not sent as the client set them, except for defaults that are left out."""
    clamped = ("temperature",) if (body.get("temperature") or 0) > MAX_TEMPERATURE else ()
    metadata = body.get("metadata")
    dropped = ("metadata",) if metadata and (not isinstance(metadata, dict) or metadata.keys() != {"user_id"}) else ()
    instructed = ("response_format",) if wants_json(body) else ()
    return (*clamped, *dropped, *instructed, *(name for name in body if name in HINTS_LEFT_OUT))
