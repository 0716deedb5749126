"""Translates OpenAI's chat messages for Anthropic's Messages API (docs/providers.md), with pure functions.

System and developer messages move to the top-level `system`. A client's content blocks are sent unchanged, including
`cache_control`; a `cache_control` on a whole message marks its last block. A message's `name`, its unsigned reasoning
and OpenAI's extras (`audio`, …) have no counterpart and are left out.

`reasoning_effort` is translated by the model's kind of thinking, which the catalogue has as `thinking`:

- `adaptive`: `thinking: {type: adaptive}` and the effort in `output_config`; `none` switches thinking off.
- `budget`: `thinking: {type: enabled, budget_tokens}` by the table below, at most half of the answer's cap and at least
  the API's minimum of 1,024; `none` is the same as no `reasoning_effort`: thinking stays off.

With thinking the API refuses forced tools and unusual sampling. A forced tool takes precedence over thinking, and
thinking over sampling fields; what is left out is disclosed. The client's own `thinking` and `output_config` take
precedence over all of this.
"""

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import orjson

from catalogue.models import Thinking
from gateway.errors import InvalidRequest

from ...call import content_of
from ...words import REASONING_FIELDS, dicts, text_of
from ..base import DroppedFields
from .schemas import schema_of, simplified

Block = dict[str, Any]
Content = str | list[Block]

PDF = "application/pdf"
# The fields of messages that are translated, by role. Other fields are left out and disclosed.
PLAIN_TRANSLATED = frozenset({"role", "content", "cache_control"})
TRANSLATED_BY_ROLE: Mapping[str, frozenset[str]] = {
    "assistant": PLAIN_TRANSLATED | {"refusal", "tool_calls", "function_call"},
    "tool": PLAIN_TRANSLATED | {"tool_call_id", "name", "is_error"},
    "function": PLAIN_TRANSLATED | {"name", "is_error"},
}
THINKING = frozenset({"thinking", "redacted_thinking"})
LEAST_BUDGET = 1024
# For each effort, Anthropic's word and a budget in tokens.
EFFORTS: Mapping[str, tuple[str, int]] = {
    "minimal": ("low", 1024),
    "low": ("low", 2048),
    "medium": ("medium", 8192),
    "high": ("high", 16384),
    "xhigh": ("xhigh", 32768),
}
LEAST_TOP_P = 0.95  # that the API allows with thinking
FORCED = ("any", "tool")
RESULT_FIELDS = ("cache_control", "is_error")
CALL_FIELDS = ("cache_control", "caller")
# Characters that the API refuses in a tool call's id. Other providers' ids, replayed from a history, may hold them.
_FOREIGN_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+)(?:;[^,;]*)*;base64,(?P<data>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Holds a translated chat: the blocks of `system`, and the `messages` of user and assistant."""

    system: list[Block]
    messages: list[Block]
    dropped: DroppedFields


@dataclass(frozen=True, slots=True)
class _Turn:
    role: str
    content: Content
    is_result: bool = False


def conversation(messages: Sequence[Mapping[str, Any]]) -> Conversation:
    """Translates the messages of a chat. Raises InvalidRequest, with the path in `param`, for one that it cannot."""
    # 1. Translate each message by its role.
    system: list[Block] = []
    dropped = DroppedFields()
    turns: list[_Turn] = []
    function_call_id = None
    for position, message in enumerate(messages):
        path = f"messages[{position}]"
        _note_dropped(message, dropped)
        match message["role"]:
            case "system" | "developer":
                system += _with_cache_control(_blocks(message.get("content"), path), message)
            case "assistant":
                if message.get("function_call"):
                    function_call_id = f"function_call_{position}"
                turns.append(_Turn("assistant", _assistant(message, path, function_call_id)))
            case "tool":
                turns.append(_Turn("user", [_result(message["tool_call_id"], message, path)], is_result=True))
            case "function":
                if function_call_id is None:
                    raise InvalidRequest.of_field(f"{path}.role", "must follow the call of a function.")
                turns.append(_Turn("user", [_result(function_call_id, message, path)], is_result=True))
            case _:
                if (content := _user(message, path)) == []:
                    raise InvalidRequest.of_field(f"{path}.content", "must not be empty: this model refuses it.")
                turns.append(_Turn("user", content))
    # 2. Join turns with tool results, and leave out empty ones of the assistant, which the API refuses.
    spoken = (turn for turn in _merged(turns) if turn.content or turn.role != "assistant")
    chat = [{"role": turn.role, "content": turn.content} for turn in spoken]
    if not chat:
        raise InvalidRequest.of_field(
            "messages", "must contain a message of the user: this model does not take system messages alone."
        )
    return Conversation(system, chat, dropped)


def _note_dropped(message: Mapping[str, Any], dropped: DroppedFields) -> None:
    """Adds the message's fields that are not translated to `dropped`."""
    handled = TRANSLATED_BY_ROLE.get(message["role"], PLAIN_TRANSLATED)
    if message["role"] == "assistant" and any(map(_is_signed, dicts(message.get("thinking_blocks")))):
        handled = handled | {"thinking_blocks", *REASONING_FIELDS}
    dropped.add_unhandled(message, handled)
    for block in dicts(message.get("content")):
        image = block.get("image_url")
        if isinstance(image, dict) and image.get("detail") not in (None, "auto"):
            dropped["detail"] = None


def text_blocks(content: Content) -> list[Block]:
    """Returns content as blocks, without blank texts, which the API refuses."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [block for block in blocks if block.get("type") != "text" or text_of(block.get("text")).strip()]


def _merged(turns: Iterable[_Turn]) -> Iterable[_Turn]:
    """Joins neighbouring turns of one role if any of them holds a tool result. Other turns stay separate.

    The results come first, because the API wants them right after the calls.
    """
    for role, group in groupby(turns, key=lambda turn: turn.role):
        neighbours = list(group)
        if any(turn.is_result for turn in neighbours):
            blocks = [block for turn in neighbours for block in text_blocks(turn.content)]
            yield _Turn(role, sorted(blocks, key=lambda block: block.get("type") != "tool_result"))
        else:
            yield from neighbours


def _user(message: Mapping[str, Any], path: str) -> Content:
    content = content_of(message)
    if isinstance(content, str) and message.get("cache_control") is None:
        return content
    return _with_cache_control(_blocks(content, path), message)


def _assistant(message: Mapping[str, Any], path: str, function_call_id: str | None) -> Content:
    """Returns an assistant's content: thinking first, then text, then the calls. A text alone stays a string."""
    calls = [_tool_use(call, f"{path}.tool_calls[{n}]") for n, call in enumerate(message.get("tool_calls") or [])]
    if message.get("function_call"):
        calls.append(_function_use(message["function_call"], function_call_id, f"{path}.function_call"))
    content = _user(message, path)
    thinking = _thinking(message, path)
    if isinstance(content, str) and not calls and not thinking:
        return content if content.strip() else ""
    blocks = text_blocks(content)
    if any(block.get("type") in THINKING for block in blocks):
        thinking = []  # the client sends the blocks within the content, as Anthropic did
    return [*thinking, *blocks, *calls]


def _thinking(message: Mapping[str, Any], path: str) -> list[Block]:
    """Returns the signed thinking of an earlier answer as Anthropic sent it, without the `index` that we added."""
    blocks = message.get("thinking_blocks") or []
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        rule = "must be an array of thinking blocks, as they were received."
        raise InvalidRequest.of_field(f"{path}.thinking_blocks", rule)
    return [{name: value for name, value in block.items() if name != "index"} for block in filter(_is_signed, blocks)]


def _is_signed(block: Mapping[str, Any]) -> bool:
    return bool(block.get("signature")) or block.get("type") == "redacted_thinking"


def require_function(tool: Mapping[str, Any], path: str) -> None:
    """Raises InvalidRequest for a tool, a call or a tool choice whose type is not `function`."""
    if tool["type"] != "function":
        raise InvalidRequest.of_field(f"{path}.type", "must be 'function': this model takes no other tools.")


def _tool_use(call: Mapping[str, Any], path: str) -> Block:
    require_function(call, path)
    use = _use(call["id"], call["function"], f"{path}.function.arguments")
    return {**use, **_kept(call, CALL_FIELDS)}


def _function_use(call: Any, function_call_id: str | None, path: str) -> Block:
    """Translates a call in OpenAI's older form (`function_call`), which has no id."""
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise InvalidRequest.of_field(path, "must be an object with a name and arguments.")
    return _use(function_call_id or "", call, f"{path}.arguments")


def _use(call_id: str, function: Mapping[str, Any], path: str) -> Block:
    arguments = _arguments(function.get("arguments") or "", path)
    return {"type": "tool_use", "id": _id(call_id), "name": function["name"], "input": arguments}


def _arguments(text: Any, path: str) -> orjson.Fragment:
    """Returns the JSON object in a call's arguments, with its text unchanged. Empty arguments become `{}`."""
    if isinstance(text, str) and not text.strip():
        return orjson.Fragment(b"{}")
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise InvalidRequest.of_field(path, "must be valid JSON.") from None
    if not isinstance(parsed, dict):
        raise InvalidRequest.of_field(path, "must be a JSON object.")
    return orjson.Fragment(text)


def _result(call_id: str, message: Mapping[str, Any], path: str) -> Block:
    content = message.get("content")
    result = content if isinstance(content, str) else _blocks(content, path)
    return {"type": "tool_result", "tool_use_id": _id(call_id), "content": result, **_kept(message, RESULT_FIELDS)}


def _blocks(content: Any, path: str) -> list[Block]:
    if not isinstance(content, list):
        return text_blocks(content or "")
    return text_blocks([_block(block, f"{path}.content[{position}]") for position, block in enumerate(content)])


def _block(block: Block, path: str) -> Block:
    match block.get("type"):
        case "image_url":
            image = {name: value for name, value in block.items() if name != "image_url"}
            return {**image, "type": "image", "source": _image(block.get("image_url"), f"{path}.image_url")}
        case "refusal":
            return {"type": "text", "text": block.get("refusal") or ""}
        case "file":
            document = {name: value for name, value in block.items() if name != "file"}
            return {**document, "type": "document", **_document(block.get("file"), f"{path}.file")}
        case "input_audio" as kind:
            raise InvalidRequest.of_field(
                f"{path}.type", f"must not be {kind!r}: this model's provider has no such block."
            )
        case _:
            return block


def _image(image: Any, path: str) -> Block:
    """Returns an image's source: its bytes if they are in the URL, else the URL. `detail` has no counterpart."""
    url = image.get("url") if isinstance(image, dict) else image
    path = f"{path}.url" if isinstance(image, dict) else path
    if not isinstance(url, str):
        raise InvalidRequest.of_field(path, "must be the URL of an image.")
    if url[:8].lower().startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    held = _DATA_URL.fullmatch(url)
    if held is None:
        raise InvalidRequest.of_field(path, "must be an http, https or base64 data URL.")
    return {"type": "base64", **held.groupdict()}


def _document(file: Any, path: str) -> Block:
    """Returns a file's source, and its name as the title. The file must be a PDF or a text."""
    data = file.get("file_data") if isinstance(file, dict) else None
    held = _DATA_URL.fullmatch(data) if isinstance(data, str) else None
    if held is None:
        raise InvalidRequest.of_field(f"{path}.file_data", "must be a base64 data URL.")
    title = {"title": file["filename"]} if isinstance(file.get("filename"), str) and file["filename"] else {}
    kind = held["media_type"].lower()
    if kind == PDF:
        return {"source": {"type": "base64", "media_type": PDF, "data": held["data"]}, **title}
    if not kind.startswith("text/"):
        raise InvalidRequest.of_field(
            f"{path}.file_data", "must be a PDF or a text: this model's provider takes no other."
        )
    try:
        text = b64decode(held["data"]).decode()
    except ValueError:
        raise InvalidRequest.of_field(f"{path}.file_data", "must be a text in UTF-8, in base64.") from None
    return {"source": {"type": "text", "media_type": "text/plain", "data": text}, **title}


def _with_cache_control(blocks: list[Block], message: Mapping[str, Any]) -> list[Block]:
    """Moves the `cache_control` of a whole message to its last block."""
    mark = message.get("cache_control")
    if mark is None or not blocks or "cache_control" in blocks[-1]:
        return blocks
    return [*blocks[:-1], {**blocks[-1], "cache_control": mark}]


def _kept(source: Mapping[str, Any], names: Iterable[str]) -> Block:
    return {name: source[name] for name in names if source.get(name) is not None}


def _id(call_id: str) -> str:
    return _FOREIGN_IN_ID.sub("_", call_id)


@dataclass(slots=True)
class OutputSettings:
    """Holds the fields to send, and the names of two sets of the client's fields.

    `left_out` are not sent. `adjusted` are disclosed to the client as changed.
    """

    fields: Block = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()


def check_output(body: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for a `reasoning_effort` or a `response_format` that has no counterpart."""
    effort = body.get("reasoning_effort", "none")
    if effort != "none" and (not isinstance(effort, str) or effort not in EFFORTS):
        names = ", ".join(["none", *EFFORTS])
        raise InvalidRequest.of_field("reasoning_effort", f"must be one of {names}.")
    schema_of(body.get("response_format"))


def output_of(body: Mapping[str, Any], kind: str, request: Block) -> OutputSettings:
    """Translates the thinking and the response format that a request asks for, after `check_output`.

    `request` is the translated request so far: its `max_tokens`, `messages` and `tool_choice` limit the thinking.
    """
    output = _thinking_of(body, kind, request)
    config = _effort_of(body, kind)
    dropped = DroppedFields()
    if (schema := schema_of(body.get("response_format"))) is not None:
        config["format"] = {"type": "json_schema", "schema": simplified(schema, dropped)}
        output.adjusted += ("response_format",) if dropped else ()
    own = body.get("output_config")
    if config and (own is None or isinstance(own, dict)):
        output.fields["output_config"] = {**config, **(own or {})}
    return output


def _effort_of(body: Mapping[str, Any], kind: str) -> Block:
    effort = body.get("reasoning_effort")
    return {"effort": EFFORTS[effort][0]} if kind == Thinking.ADAPTIVE and effort not in (None, "none") else {}


def _thinking_of(body: Mapping[str, Any], kind: str, request: Block) -> OutputSettings:
    effort = body.get("reasoning_effort")
    if effort is None:
        return OutputSettings()
    is_forced = request.get("tool_choice", {}).get("type") in FORCED
    if kind == Thinking.ADAPTIVE:
        if "thinking" in body or (is_forced and effort != "none"):
            return OutputSettings()
        return _with_thinking({"type": "disabled"} if effort == "none" else {"type": "adaptive"}, body)
    if effort == "none" and "thinking" not in body:
        return OutputSettings()
    cap = request["max_tokens"]
    if "thinking" in body or is_forced or cap <= LEAST_BUDGET or _continues_without_thinking(request["messages"]):
        return OutputSettings(adjusted=("reasoning_effort",))
    budget = max(LEAST_BUDGET, min(EFFORTS[effort][1], cap // 2))
    return _with_thinking({"type": "enabled", "budget_tokens": budget}, body)


def _with_thinking(thinking: Block, body: Mapping[str, Any]) -> OutputSettings:
    """Returns the thinking, and leaves out sampling fields that the API refuses with it."""
    if thinking["type"] == "disabled":
        return OutputSettings({"thinking": thinking})
    unusual = {
        "temperature": body.get("temperature", 1) != 1,
        "top_p": body.get("top_p", 1) < LEAST_TOP_P,
        "top_k": "top_k" in body,
    }
    left_out = tuple(name for name, is_unusual in unusual.items() if is_unusual)
    return OutputSettings({"thinking": thinking}, left_out, left_out)


def _continues_without_thinking(messages: Sequence[Block]) -> bool:
    """Tells whether the model is to continue a turn that did not begin with thinking.

    The API refuses a thinking budget for it. Such a turn is an assistant's message at the end, or a turn whose calls
    are answered at the end and whose thinking was not sent back.
    """
    if messages and messages[-1]["role"] == "assistant":
        return True
    if len(messages) < 2 or not _begins_with(messages[-1], {"tool_result"}):
        return False
    return not _begins_with(messages[-2], THINKING)


def _begins_with(message: Block, kinds: set[str] | frozenset[str]) -> bool:
    content = message["content"]
    return isinstance(content, list) and bool(content) and content[0].get("type") in kinds
