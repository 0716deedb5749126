"""Translates requests of the Messages API into chats, for routes of other dialects, with pure functions.

Fields that a chat does not have (`cache_control`, signatures, …) go into `DroppedFields`. Blocks that it cannot express
are refused. The billing line in Claude Code's system prompt is dropped as well, since it changes and would defeat every
prompt cache.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any

from gateway.edge.checks import Json, each, fault, text_in
from gateway.errors import InvalidRequest

from ...dialects.base import DroppedFields, encoded
from ...words import without
from ..base import note_dropped_within, results_in_text
from ..sampling import effort_of
from ..signatures import ENVELOPES, opened, parts_of_id

BILLING_LINE = "x-anthropic-billing-header:"
TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
WORDS_OF_EFFORT = {"max": "xhigh"}  # efforts that have another name in a chat
USUAL_EFFORT = "high"  # the API's default
# The fields that are translated; every other field goes upstream unchanged.
TRANSLATED = frozenset(
    {"messages", "system", "tools", "tool_choice", "stop_sequences", "metadata", "thinking", "output_config"}
    | {"output_format", "service_tier", "cache_control", "context_management", "speed"}
)
# Of these, fields for the provider's caching and records, which are dropped and disclosed.
LEFT_OUT = ("cache_control", "context_management", "metadata")
# The fields of blocks and tools, by type, that are translated or that a chat does not need. Others are disclosed.
HANDLED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "text": ("type", "text"),
    "image": ("type", "source"),
    "document": ("type", "source", "title", "context"),
    "search_result": ("type", "source", "title", "content"),
    "thinking": ("type", "thinking"),
    "redacted_thinking": ("type", "data"),
    "tool_use": ("type", "id", "name", "input"),
    "tool_result": ("type", "tool_use_id", "content"),
    "tool_reference": ("type", "tool_name"),
    "tool": ("type", "name", "description", "strict", "input_schema"),
}
OF_A_MESSAGE = ("role", "content")
OF_A_SOURCE = ("type", "url", "media_type", "data", "content")
DIRECT = {"type": "direct"}  # the `caller` of a call that the model makes itself, as all calls here are
FAILED = "Error:"  # put before the result of a tool that has failed
LOADED = "Loaded tools:"  # put before the names of tools that the client's tool search has found


def chat_of(body: Mapping[str, Any], *, takes_none: bool = False) -> tuple[Json, DroppedFields]:
    """Returns the body of a chat, and the names of fields that it leaves out. Raises InvalidRequest.

    `takes_none` means that the model accepts the effort `none`.
    """
    dropped = DroppedFields((name, None) for name in LEFT_OUT if name in body)
    chat: Json = {name: value for name, value in body.items() if name not in TRANSLATED}
    translation = _Translation(dropped)
    messages = chain.from_iterable(each(body["messages"], translation.message, "messages"))
    chat["messages"], has_moved = results_in_text([*translation.system(body.get("system")), *messages])
    if has_moved:
        dropped["tool_result"] = None
    if tools := body.get("tools"):
        chat["tools"] = each(tools, partial(_tool, dropped), "tools")
        chat |= _tool_choice(body.get("tool_choice"), dropped)
    elif (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        dropped["tool_choice"] = None
    if stops := body.get("stop_sequences"):
        chat["stop"] = stops
    return chat | _thinking(body, dropped, takes_none=takes_none) | _format(body, dropped), dropped


class _Translation:
    """Translates messages, and collects the names of what it leaves out."""

    def __init__(self, dropped: DroppedFields) -> None:
        self._dropped = dropped

    def system(self, system: Any) -> list[Json]:
        """Turns the system prompt into one message, with a paragraph for each block."""
        blocks = [{"text": system}] if isinstance(system, str) else system or ()
        texts = []
        for block in blocks:
            if block["text"] and not block["text"].startswith(BILLING_LINE):
                self._dropped.add_unhandled(block, HANDLED_FIELDS["text"])
                texts.append(block["text"])
        return [{"role": "system", "content": "\n\n".join(texts)}] if texts else []

    def message(self, message: Json) -> list[Json]:
        """Translates a message into any number of messages of a chat."""
        self._dropped.add_unhandled(message, OF_A_MESSAGE)
        role, content = message["role"], message["content"]
        if isinstance(content, str):
            return [{"role": role, "content": content}]
        return self._assistant(content) if role == "assistant" else self._user(role, content)

    def _assistant(self, blocks: list[Json]) -> list[Json]:
        """Translates an assistant's blocks into one message with text, reasoning and calls; none if it is empty."""
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[Json] = []
        envelopes: list[Json] = []

        def take(block: Json) -> None:
            if block["type"] == "thinking" and isinstance(envelope := opened(block.get("signature")), dict):
                envelopes.append(envelope)
                block = without(block, ("signature",))
            direct = ("caller",) if block.get("caller") == DIRECT else ()
            self._dropped.add_unhandled(block, (*HANDLED_FIELDS.get(block["type"], ()), *direct))
            match block["type"]:
                case "text":
                    texts.append(text_in(block, "text"))
                case "thinking" if block.get("thinking") is not None:
                    thoughts.append(text_in(block, "thinking"))
                case "thinking":
                    pass
                case "redacted_thinking":
                    self._dropped["redacted_thinking"] = None
                case "tool_use":
                    call, signature = _call(block)
                    calls.append(call)
                    if isinstance(envelope := opened(signature), dict):
                        envelopes.append(envelope)
                    elif signature:
                        self._dropped["signature"] = None
                case kind:
                    raise _no_form(kind)

        each(blocks, take, ".content")
        message: Json = {"role": "assistant", "content": "".join(texts) or None}
        if any(thoughts):
            message["reasoning_content"] = "".join(thoughts)
        if envelopes:
            message[ENVELOPES] = envelopes
        if calls:
            message["tool_calls"] = calls
        if any(texts) or calls:
            return [message]
        if any(thoughts):
            self._dropped["thinking"] = None
        return []

    def _user(self, role: str, blocks: list[Json]) -> list[Json]:
        """Translates a user's blocks: first a message for each tool result, then one with the rest."""
        results: list[Json] = []
        rest: list[Json] = []

        def take(block: Json) -> None:
            if block["type"] == "tool_result":
                content = self._result(block)
                call_id, _ = parts_of_id(block["tool_use_id"])
                results.append({"role": "tool", "tool_call_id": call_id, "content": content})
            else:
                rest.extend(self._parts(block))

        each(blocks, take, ".content")
        return [*results, {"role": role, "content": _alone(rest)}] if rest else results

    def _result(self, block: Json) -> str | list[Json]:
        """Translates a tool's result. A failure and loaded tools become text, since a chat has no fields for them."""
        self._dropped.add_unhandled(block, HANDLED_FIELDS["tool_result"])
        text_in(block, "tool_use_id")
        loaded: list[str] = []

        def take(inner: Any) -> list[Json]:
            if not isinstance(inner, dict) or inner.get("type") != "tool_reference":
                return self._parts(inner)
            self._dropped["tool_reference"] = None
            self._dropped.add_unhandled(inner, HANDLED_FIELDS["tool_reference"])
            loaded.append(text_in(inner, "tool_name"))
            return []

        parts = self._shown(block.get("content") or "", ".content", take)
        if loaded:
            parts.append(_text_part(f"{LOADED} {', '.join(loaded)}"))
        if block.get("is_error") is True:
            said, rest = (parts[0]["text"], parts[1:]) if parts and parts[0]["type"] == "text" else ("", parts)
            if not said.lower().startswith("error"):
                parts = [_text_part(f"{FAILED} {said}".rstrip()), *rest]
        if all(part["type"] == "text" for part in parts):
            return "\n".join(part["text"] for part in parts)
        return parts

    def _shown(self, content: Any, path: str, take: Callable[[Any], list[Json]]) -> list[Json]:
        """Translates a string, or an array of blocks by `take`, into parts."""
        if isinstance(content, str):
            return [_text_part(content)]
        if not isinstance(content, list):
            raise fault(path, "must be a string or an array of content blocks.")
        return list(chain.from_iterable(each(content, take, path)))

    def _parts(self, block: Any, *, is_inner: bool = False) -> list[Json]:
        """Translates a user's block into parts of a chat message."""
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise fault("", "must be an object with a type.")
        kind, source, inner = block["type"], block.get("source"), partial(self._parts, is_inner=True)
        if is_inner and kind not in ("text", "image"):  # the API's rule, which also bounds the recursion
            raise fault(".type", "must be text or image: other blocks do not nest.")
        uncited = ("citations",) if block.get("citations") == {"enabled": False} else ()
        self._dropped.add_unhandled(block, (*HANDLED_FIELDS.get(kind, ()), *uncited))
        if isinstance(source, dict):
            self._dropped.add_unhandled(source, OF_A_SOURCE)
        for name in ("title", "context"):
            if block.get(name) and not isinstance(block[name], str):
                self._dropped[name] = None
        if kind == "text":
            return [_text_part(text_in(block, "text"))]
        if kind == "image" and isinstance(source, dict):
            return [{"type": "image_url", "image_url": {"url": _url(source)}}]
        if kind == "search_result":
            return [
                *_heading(block, "title", "source"),
                *self._shown(block.get("content") or "", ".content", inner),
            ]
        if kind != "document" or not isinstance(source, dict):
            raise _no_form(kind)
        if source.get("type") == "text" and isinstance(source.get("data"), str):
            return [*_heading(block, "title", "context"), _text_part(source["data"])]
        if source.get("type") == "content":
            shown = self._shown(source.get("content") or "", ".source.content", inner)
            return [*_heading(block, "title", "context"), *shown]
        title = block.get("title")
        name = title if isinstance(title, str) and title else "document.pdf"
        file = {"filename": name, "file_data": _data_url(source, "base64, text or content")}
        return [*_heading(block, "context"), {"type": "file", "file": file}]


def _text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def _alone(parts: list[Json]) -> str | list[Json]:
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _heading(block: Json, *names: str) -> list[Json]:
    """Returns a text with these fields of a document, such as its title, a line each."""
    lines = [
        f"{name.capitalize()}: {block[name]}" for name in names if isinstance(block.get(name), str) and block[name]
    ]
    return [_text_part("\n".join(lines))] if lines else []


def _call(block: Json) -> tuple[Json, str]:
    """Translates a call; also returns the envelope in its id."""
    name, call_id, given = block.get("name"), block.get("id"), block.get("input")
    if not isinstance(name, str) or not isinstance(call_id, str) or not isinstance(given, dict):
        raise fault("", "must have an id, a name and an input that is an object.")
    own, envelope = parts_of_id(call_id)
    function = {"name": name, "arguments": encoded(given).decode()}
    return {"id": own, "type": "function", "function": function}, envelope


def _url(source: Json) -> str:
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return str(source["url"])
    return _data_url(source, "base64 or url")


def _data_url(source: Json, kinds: str) -> str:
    kind, data = source.get("media_type"), source.get("data")
    if source.get("type") != "base64" or not isinstance(kind, str) or not isinstance(data, str):
        rule = f"must be of the type {kinds}, with its data: this model's provider takes no other."
        raise fault(".source", rule)
    return f"data:{kind};base64,{data}"


def _no_form(kind: str) -> InvalidRequest:
    rule = f"must not be {kind!r}: this model's provider has no such block. Leave it out, or send it as text."
    return fault(".type", rule)


def _tool(dropped: DroppedFields, tool: Json) -> Json:
    dropped.add_unhandled(tool, HANDLED_FIELDS["tool"])
    if tool.get("type", "custom") != "custom":
        rule = (
            f"must not be {tool['type']!r}: this model's provider does not have it. Describe it by an `input_schema`."
        )
        raise fault(".type", rule)
    function = {name: tool[name] for name in ("name", "description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": {**function, "parameters": tool["input_schema"]}}


def _tool_choice(choice: Json | None, dropped: DroppedFields) -> Json:
    if choice is None:
        return {}
    kind = choice["type"]
    note_dropped_within("tool_choice", choice, ("type", "name", "disable_parallel_tool_use"), dropped)
    chosen: Any = TOOL_CHOICES.get(kind) or {"type": "function", "function": {"name": choice["name"]}}
    parallel = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") is True else {}
    return {"tool_choice": chosen, **parallel}


def _thinking(body: Mapping[str, Any], dropped: DroppedFields, *, takes_none: bool) -> Json:
    """Returns the `reasoning_effort` for the effort that a request names, unless it is the default, or for its budget.

    Disabled thinking becomes `none` if the model accepts that. Adaptive thinking leaves the effort to the model, so
    nothing is sent. Any other kind, or thinking enabled without a budget, cannot be expressed and is disclosed.
    """
    config, thinking = body.get("output_config") or {}, body.get("thinking") or {}
    dropped.add_unhandled(config, ("effort", "format"))
    note_dropped_within("thinking", thinking, ("type", "budget_tokens"), dropped)
    budget = thinking.get("budget_tokens") if thinking.get("type") == "enabled" else None
    if thinking.get("type") not in (None, "adaptive", "disabled") and budget is None:
        dropped["thinking"] = None
    if thinking.get("type") == "disabled":
        if takes_none:
            return {"reasoning_effort": "none"}
        dropped["thinking"] = None
    effort = config.get("effort", USUAL_EFFORT)
    if effort != USUAL_EFFORT:
        if budget is not None:
            dropped["thinking.budget_tokens"] = None
        if effort in WORDS_OF_EFFORT:
            dropped["output_config.effort"] = None
        return {"reasoning_effort": WORDS_OF_EFFORT.get(effort, effort)}
    return {} if budget is None else {"reasoning_effort": effort_of(budget)}


def _format(body: Mapping[str, Any], dropped: DroppedFields) -> Json:
    """Returns the `response_format` for `output_config.format`, or for its older name `output_format`."""
    former = body.get("output_format")
    if former is not None and (body.get("output_config") or {}).get("format") not in (None, former):
        dropped["output_format"] = None
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format")
    if wanted is None:
        return {}
    schema = wanted.get("schema") if isinstance(wanted, dict) and wanted.get("type") == "json_schema" else None
    if not isinstance(schema, dict):
        raise fault("output_config.format", "must be a json_schema with its schema.")
    note_dropped_within("output_config.format", wanted, ("type", "schema"), dropped)
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    }
