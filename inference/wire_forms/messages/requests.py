"""A request of the Messages API as a chat in OpenAI's words, for routes of other dialects. Pure functions.

Marks of caching and signatures stay behind, as do redacted thinking and the line by which Claude Code tells its vendor
whom to bill, which would spoil every prompt cache. What a client says in blocks that a chat has no form for is refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.errors import InvalidRequest
from gateway.turns import in_turns

from ...dialects.base import encoded

Json = dict[str, Any]

BILLING_LINE = "x-anthropic-billing-header:"
TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
# What a thinking budget of so many tokens and more asks for.
EFFORTS = ((16_384, "high"), (4_096, "medium"), (0, "low"))
WORDS_OF_EFFORT = {"max": "xhigh"}
USUAL_EFFORT = "high"  # as without the field
# What is translated; every other field goes upstream as it came.
TRANSLATED = frozenset(
    {"messages", "system", "tools", "tool_choice", "stop_sequences", "metadata", "thinking", "output_config"}
    | {"output_format", "service_tier", "cache_control", "context_management", "speed"}
)
# Those that save or tell the provider something: not sent, and disclosed.
LEFT_OUT = ("cache_control", "context_management", "metadata")


def chat_of(body: Mapping[str, Any]) -> Json:
    """The body of a chat. Raises InvalidRequest for what has no form there, its path in `param`."""
    chat: Json = {name: value for name, value in body.items() if name not in TRANSLATED}
    system = _system(body.get("system"))
    chat["messages"] = [*system, *_messages(body["messages"])]
    if tools := body.get("tools"):
        chat["tools"] = [_tool(tool, f"tools[{position}]") for position, tool in enumerate(tools)]
        chat |= _tool_choice(body.get("tool_choice"))
    if stops := body.get("stop_sequences"):
        chat["stop"] = stops
    return chat | _thinking(body) | _format(body)


def _system(system: Any) -> list[Json]:
    """The system prompt as one message: of several blocks each is a paragraph."""
    texts = [system] if isinstance(system, str) else [block["text"] for block in system or ()]
    text = "\n\n".join(text for text in texts if text and not text.startswith(BILLING_LINE))
    return [{"role": "system", "content": text}] if text else []


def _messages(messages: list[Json]) -> Iterator[Json]:
    for position, message in in_turns(messages):
        path, content = f"messages[{position}].content", message["content"]
        if isinstance(content, str):
            yield {"role": message["role"], "content": content}
        elif message["role"] == "assistant":
            yield from _assistant(content, path)
        else:
            yield from _user(message["role"], content, path)


def _assistant(blocks: list[Json], path: str) -> Iterator[Json]:
    """What was said, thought and called, each in the one place that a chat has for it. Nothing is no message."""
    texts, thoughts, calls = [], [], []
    for position, block in enumerate(blocks):
        match block["type"]:
            case "text":
                texts.append(_text(block, f"{path}[{position}]"))
            case "thinking":
                thoughts.append(block.get("thinking") or "")
            case "redacted_thinking":
                pass
            case "tool_use":
                calls.append(_call(block, f"{path}[{position}]"))
            case kind:
                raise _no_form(kind, f"{path}[{position}]")
    message: Json = {"role": "assistant", "content": "".join(texts) or None}
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    if texts or calls:
        yield message


def _call(block: Json, path: str) -> Json:
    name, call_id, given = block.get("name"), block.get("id"), block.get("input")
    if not isinstance(name, str) or not isinstance(call_id, str) or not isinstance(given, dict):
        raise InvalidRequest.of_field(path, "must have an id, a name and an input that is an object.")
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": encoded(given).decode()}}


def _user(role: str, blocks: list[Json], path: str) -> Iterator[Json]:
    """Results of tools first, as the messages that a chat has for them, then the rest and the results' pictures."""
    rest: list[Json] = []
    for position, block in enumerate(blocks):
        at = f"{path}[{position}]"
        if block["type"] != "tool_result":
            rest.append(_part(block, at))
            continue
        parts = _result(block, at)
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}
        rest += [part for part in parts if part["type"] != "text"]
    if rest:
        alone = rest[0]["text"] if len(rest) == 1 and rest[0]["type"] == "text" else None
        yield {"role": role, "content": rest if alone is None else alone}


def _result(block: Json, path: str) -> list[Json]:
    if not isinstance(block.get("tool_use_id"), str):
        raise InvalidRequest.of_field(f"{path}.tool_use_id", "must be a string.")
    content = block.get("content")
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content or ""}]
    if not isinstance(content, list):
        raise InvalidRequest.of_field(f"{path}.content", "must be a string or an array of content blocks.")
    return [_part(part, f"{path}.content[{position}]") for position, part in enumerate(content)]


def _part(block: Any, path: str) -> Json:
    """A block of a user's as a part of a chat message."""
    source = block.get("source") if isinstance(block, dict) else None
    match block:
        case {"type": "text"}:
            return {"type": "text", "text": _text(block, path)}
        case {"type": "image"} if isinstance(source, dict):
            return {"type": "image_url", "image_url": {"url": _url(source, path)}}
        case {"type": "document"} if isinstance(source, dict):
            if source.get("type") == "text" and isinstance(source.get("data"), str):
                return {"type": "text", "text": source["data"]}
            title = block.get("title")
            name = title if isinstance(title, str) and title else "document.pdf"
            return {"type": "file", "file": {"filename": name, "file_data": _data_url(source, path)}}
        case {"type": str(kind)}:
            raise _no_form(kind, path)
        case _:
            raise InvalidRequest.of_field(path, "must be an object with a type.")


def _url(source: Json, path: str) -> str:
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return str(source["url"])
    return _data_url(source, path)


def _data_url(source: Json, path: str) -> str:
    kind, data = source.get("media_type"), source.get("data")
    if source.get("type") != "base64" or not isinstance(kind, str) or not isinstance(data, str):
        raise InvalidRequest.of_field(
            f"{path}.source", "must hold its data in base64: this model's provider takes no other."
        )
    return f"data:{kind};base64,{data}"


def _text(block: Json, path: str) -> str:
    text = block.get("text")
    if not isinstance(text, str):
        raise InvalidRequest.of_field(f"{path}.text", "must be a string.")
    return text


def _no_form(kind: str, path: str) -> InvalidRequest:
    return InvalidRequest.of_field(f"{path}.type", f"must not be {kind!r}: this model's provider has no such block.")


def _tool(tool: Json, path: str) -> Json:
    if tool.get("type", "custom") != "custom":
        rule = (
            f"must not be {tool['type']!r}: this model's provider knows no such tool. Describe it by an `input_schema`."
        )
        raise InvalidRequest.of_field(f"{path}.type", rule)
    function = {name: tool[name] for name in ("name", "description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": {**function, "parameters": tool["input_schema"]}}


def _tool_choice(choice: Json | None) -> Json:
    if choice is None:
        return {}
    kind = choice["type"]
    chosen: Any = TOOL_CHOICES.get(kind) or {"type": "function", "function": {"name": choice["name"]}}
    parallel = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") is True else {}
    return {"tool_choice": chosen, **parallel}


def _thinking(body: Mapping[str, Any]) -> Json:
    """The effort that a request names beyond the usual, or that its budget comes to.

    Adaptive thinking is the model's own choice.
    """
    config, thinking = body.get("output_config") or {}, body.get("thinking") or {}
    effort = config.get("effort", USUAL_EFFORT)
    if effort != USUAL_EFFORT:
        return {"reasoning_effort": WORDS_OF_EFFORT.get(effort, effort)}
    budget = thinking.get("budget_tokens")
    if thinking.get("type") == "enabled" and isinstance(budget, int):
        return {"reasoning_effort": next(word for least, word in EFFORTS if budget >= least)}
    return {}


def _format(body: Mapping[str, Any]) -> Json:
    """The form of an answer in JSON, by either of the names that the API has had for it."""
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format")
    if wanted is None:
        return {}
    schema = wanted.get("schema") if isinstance(wanted, dict) and wanted.get("type") == "json_schema" else None
    if not isinstance(schema, dict):
        raise InvalidRequest.of_field("output_config.format", "must be a json_schema with its schema.")
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    }


def left_out(body: Mapping[str, Any]) -> Iterable[str]:
    """The names of the fields that a chat is sent without."""
    return (name for name in LEFT_OUT if name in body)
