"""OpenAI's chat messages in the words of Anthropic's Messages API (docs/providers.md). Pure functions.

System and developer messages leave the conversation for the top-level `system`. What a client says in blocks goes as it
came, `cache_control` included; a `cache_control` on a whole message marks its last block. A message's `name`, its
unsigned reasoning and OpenAI's own extras (`audio`, …) have no place there and stay behind.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import orjson

from gateway.errors import InvalidRequest

from ..messages import content_of

Block = dict[str, Any]
Content = str | list[Block]

THINKING = frozenset({"thinking", "redacted_thinking"})
RESULT_FIELDS = ("cache_control", "is_error")
CALL_FIELDS = ("cache_control", "caller")
# What the API takes as the id of a tool call. Other providers' ids, replayed from a history, may hold more.
_FOREIGN_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+)(?:;[^,;]*)*;base64,(?P<data>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat in two parts: the blocks of `system`, and the `messages` of user and assistant."""

    system: list[Block]
    messages: list[Block]


@dataclass(frozen=True, slots=True)
class _Turn:
    role: str
    content: Content
    is_result: bool = False


def conversation(messages: Sequence[Mapping[str, Any]]) -> Conversation:
    """The chat, its roles translated. Raises InvalidRequest for what cannot be, its path in `param`."""
    system: list[Block] = []
    turns: list[_Turn] = []
    function_call_id = None
    for position, message in enumerate(messages):
        path = f"messages[{position}]"
        match message["role"]:
            case "system" | "developer":
                system += _marked(_blocks(message.get("content"), path), message)
            case "assistant":
                if message.get("function_call"):
                    function_call_id = f"function_call_{position}"
                turns.append(_Turn("assistant", _assistant(message, path, function_call_id)))
            case "tool":
                turns.append(_Turn("user", [_result(message["tool_call_id"], message, path)], is_result=True))
            case "function":
                turns.append(_Turn("user", [_result(_called(function_call_id, path), message, path)], is_result=True))
            case _:
                turns.append(_Turn("user", _user(message, path)))
    return Conversation(system, [message for turn in _merged(turns) for message in _spoken(turn)])


def text_blocks(content: Content) -> list[Block]:
    """Content as blocks. An empty text is none: the API refuses empty ones."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def _merged(turns: Iterable[_Turn]) -> Iterable[_Turn]:
    """The user's turns that hold tool results become one, its results first: the API wants them all right after the
    calls. Other turns stay apart."""
    for role, group in groupby(turns, key=lambda turn: turn.role):
        neighbours = list(group)
        if any(turn.is_result for turn in neighbours):
            blocks = [block for turn in neighbours for block in text_blocks(turn.content)]
            yield _Turn(role, sorted(blocks, key=lambda block: block.get("type") != "tool_result"))
        else:
            yield from neighbours


def _spoken(turn: _Turn) -> list[Block]:
    """The turn as a message. An assistant that said nothing is left out: the API refuses it, and it means nothing."""
    if turn.role == "assistant" and not turn.content:
        return []
    return [{"role": turn.role, "content": turn.content}]


def _user(message: Mapping[str, Any], path: str) -> Content:
    content = content_of(message)
    if isinstance(content, str) and message.get("cache_control") is None:
        return content
    return _marked(_blocks(content, path), message)


def _assistant(message: Mapping[str, Any], path: str, function_call_id: str | None) -> Content:
    """Thinking first, then what was said, then the calls. A plain text stays one."""
    calls = [_tool_use(call, f"{path}.tool_calls[{n}]") for n, call in enumerate(message.get("tool_calls") or [])]
    if message.get("function_call"):
        calls.append(_function_use(message["function_call"], function_call_id, f"{path}.function_call"))
    said = _user(message, path)
    thinking = _thinking(message, path)
    if isinstance(said, str) and not calls and not thinking:
        return said
    blocks = text_blocks(said)
    if any(block.get("type") in THINKING for block in blocks):
        thinking = []  # the client kept the blocks where Anthropic had put them
    return [*thinking, *blocks, *calls]


def _thinking(message: Mapping[str, Any], path: str) -> list[Block]:
    """The signed thinking that an answer of ours carried, as it was; `index` is the only thing that was added to it."""
    blocks = message.get("thinking_blocks") or []
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        rule = "must be an array of thinking blocks, as they were received."
        raise InvalidRequest.of_field(f"{path}.thinking_blocks", rule)
    signed = [block for block in blocks if block.get("signature") or block.get("type") == "redacted_thinking"]
    return [{name: value for name, value in block.items() if name != "index"} for block in signed]


def require_function(tool: Mapping[str, Any], path: str) -> None:
    """Raises InvalidRequest for a tool, a call or a choice of a kind that the API has no form for."""
    if tool["type"] != "function":
        raise InvalidRequest.of_field(f"{path}.type", "must be 'function': this model takes no other tools.")


def _tool_use(call: Mapping[str, Any], path: str) -> Block:
    require_function(call, path)
    use = _use(call["id"], call["function"], f"{path}.function.arguments")
    return {**use, **_kept(call, CALL_FIELDS)}


def _function_use(call: Any, function_call_id: str | None, path: str) -> Block:
    """The call of a function from the days before tools, which had no id."""
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise InvalidRequest.of_field(path, "must be an object with a name and arguments.")
    return _use(function_call_id or "", call, f"{path}.arguments")


def _use(call_id: str, function: Mapping[str, Any], path: str) -> Block:
    arguments = _arguments(function.get("arguments") or "", path)
    return {"type": "tool_use", "id": _id(call_id), "name": function["name"], "input": arguments}


def _arguments(text: Any, path: str) -> orjson.Fragment:
    """The object in a string of arguments, its text unchanged. Empty ones are those of a tool that takes none."""
    if isinstance(text, str) and not text.strip():
        return orjson.Fragment(b"{}")
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise InvalidRequest.of_field(path, "must be valid JSON.") from None
    if not isinstance(parsed, dict):
        raise InvalidRequest.of_field(path, "must be a JSON object.")
    return orjson.Fragment(text)


def _called(function_call_id: str | None, path: str) -> str:
    if function_call_id is None:
        raise InvalidRequest.of_field(f"{path}.role", "must follow the call of a function.")
    return function_call_id


def _result(call_id: str, message: Mapping[str, Any], path: str) -> Block:
    content = message.get("content")
    said = content if isinstance(content, str) else _blocks(content, path)
    return {"type": "tool_result", "tool_use_id": _id(call_id), "content": said, **_kept(message, RESULT_FIELDS)}


def _blocks(content: Any, path: str) -> list[Block]:
    """A message's content as blocks, those of OpenAI's own kinds translated."""
    if not isinstance(content, list):
        return text_blocks(content or "")
    return [_block(block, f"{path}.content[{position}]") for position, block in enumerate(content)]


def _block(block: Block, path: str) -> Block:
    match block.get("type"):
        case "image_url":
            image = {name: value for name, value in block.items() if name != "image_url"}
            return {**image, "type": "image", "source": _image(block.get("image_url"), f"{path}.image_url")}
        case "refusal":
            return {"type": "text", "text": block.get("refusal") or ""}
        case "input_audio" | "file" as kind:
            raise InvalidRequest.of_field(
                f"{path}.type", f"must not be {kind!r}: this model's provider has no such block."
            )
        case _:
            return block


def _image(image: Any, path: str) -> Block:
    """An image's source: its bytes where the URL holds them, else the URL. `detail` has no counterpart."""
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


def _marked(blocks: list[Block], message: Mapping[str, Any]) -> list[Block]:
    """Blocks of a message that asked as a whole to be cached up to its end."""
    mark = message.get("cache_control")
    if mark is None or not blocks or "cache_control" in blocks[-1]:
        return blocks
    return [*blocks[:-1], {**blocks[-1], "cache_control": mark}]


def _kept(source: Mapping[str, Any], names: Iterable[str]) -> Block:
    return {name: source[name] for name in names if source.get(name) is not None}


def _id(call_id: str) -> str:
    return _FOREIGN_IN_ID.sub("_", call_id)
