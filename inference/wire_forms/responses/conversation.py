"""Translates input items of the Responses API into the messages of a chat.

An assistant's items between two inputs (reasoning, a message, calls) become one message. Reasoning is sent back as
`reasoning_content`, and signed thinking from `encrypted_content` as `thinking_blocks`. Other content of an envelope is
restored once the route is known (`signatures`). What another gateway or provider has encrypted is left out.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.edge.checks import Json, each, fault, require, text_in

from ...dialects.base import DroppedFields
from ..base import NO_FILES
from ..signatures import ENVELOPES, opened
from .tools import ADDED, arguments_of_input, function_name

MAX_ITEMS = 50_000
ROLES = ("user", "system", "developer", "assistant")
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
KEPT_NOWHERE = (
    "Responses are not kept here: send the items of earlier responses back in `input`, their reasoning with `include: "
    '["reasoning.encrypted_content"]`.'
)
# The fields of items and of their parts, by type, that are translated or that a chat does not need. Others are left
# out and disclosed.
OF_ALL = ("type", "id", "status")
HANDLED_OF_ITEMS: Mapping[str, tuple[str, ...]] = {
    "message": (*OF_ALL, "role", "content"),
    ADDED: (*OF_ALL, "role", "tools"),
    "reasoning": (*OF_ALL, "summary", "content", "encrypted_content"),
    "function_call": (*OF_ALL, "call_id", "namespace", "name", "arguments"),
    "custom_tool_call": (*OF_ALL, "call_id", "namespace", "name", "input"),
    "function_call_output": (*OF_ALL, "call_id", "output"),
    "custom_tool_call_output": (*OF_ALL, "call_id", "output"),
}
HANDLED_OF_PARTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(TEXTS, ("type", "text", "cache_control")),
    "input_image": ("type", "image_url", "detail", "cache_control"),
    "input_file": ("type", "file_data", "filename", "detail", "cache_control"),
    "input_audio": ("type", "input_audio", "cache_control"),
}
HANDLED_OF_SPEECH = ("type", "text", "refusal")


def conversation_of(given: Any, instructions: str | None, dropped: DroppedFields) -> "Conversation":
    """Translates a request's `instructions` and `input` into messages. Raises InvalidRequest."""
    conversation = Conversation(dropped)
    if instructions:
        conversation.append({"role": "system", "content": instructions}, None)
    if isinstance(given, str):
        conversation.append({"role": "user", "content": given}, None)
        return conversation
    if not isinstance(given, list) or not given:
        raise fault("input", "must be a string or an array of at least one item.")
    if len(given) > MAX_ITEMS:
        raise fault("input", f"must be at most {MAX_ITEMS} items.")
    each(given, conversation.add, "input")
    conversation.close()
    if not conversation.messages:
        raise fault("input", "must hold a message.")
    return conversation


class Conversation:
    """Collects the messages of the items that were added.

    `places` has, for each message, the positions of the items that it was made of: its own, then those of its calls.
    """

    def __init__(self, dropped: DroppedFields) -> None:
        self.messages: list[Json] = []
        self.places: list[tuple[int | None, ...]] = []
        self._turn: Json = {}  # the assistant's message while its items are added
        self._turn_places: list[int | None] = []
        self._position = -1  # of the item that is being added
        self._dropped = dropped

    def append(self, message: Json, *places: int | None) -> None:
        self.messages.append(message)
        self.places.append(places)

    def add(self, given: Any) -> None:
        """Adds the next item. Raises InvalidRequest for one that a chat cannot express."""
        self._position += 1
        item: Json = require(given, dict, "", "an object")
        kind = item.get("type") or ("message" if "role" in item or "id" not in item else "item_reference")
        if kind == "item_reference":
            rule = f"must not be item_reference: ask with `store: false`, and clients send the items. {KEPT_NOWHERE}"
            raise fault(".type", rule)
        take = KINDS.get(kind) if isinstance(kind, str) else None
        if take is None:
            raise fault(".type", f"must be one of {', '.join(KINDS)}.")
        self._dropped.add_unhandled(item, HANDLED_OF_ITEMS[kind])
        take(self, item)

    def close(self) -> None:
        """Ends the assistant's turn, and appends its message."""
        turn, self._turn = self._turn, {}
        places, self._turn_places = self._turn_places, []
        if turn.get("content") is not None or turn.get("tool_calls") or turn.get("refusal"):
            self.append({"role": "assistant", "content": None, **turn}, *places)
        elif turn:  # reasoning without a message or a call
            self._dropped["reasoning"] = None

    def added_tools(self, item: Json) -> None:
        """Does nothing, since `tools_of` reads these items."""

    def message(self, item: Json) -> None:
        role, content = item.get("role"), item.get("content")
        if role not in ROLES:
            raise fault(".role", f"must be one of {', '.join(ROLES)}.")
        if role == "assistant":
            self._spoken(content)
            return
        self.close()
        self.append({"role": role, "content": self._content(content, ".content")}, self._position)

    def _spoken(self, content: Any) -> None:
        text, refusal = self._words(content)
        before = self._turn.get("content")
        if before is not None and not self._turn.get("tool_calls"):
            self.close()
            before = None
        self._begin()
        if refusal:
            self._turn["refusal"] = refusal
        if text or not refusal:
            self._turn["content"] = text if before is None else f"{before}\n\n{text}"

    def _begin(self) -> None:
        if not self._turn_places:
            self._turn_places.append(self._position)

    def reasoning(self, item: Json) -> None:
        self._begin()
        text, summary = "".join(_texts(item, "content")), "\n\n".join(_texts(item, "summary"))
        if text and summary:
            self._dropped["summary"] = None
        text = text or summary
        if text:
            self._turn["reasoning_content"] = self._turn.get("reasoning_content", "") + text
        content = opened(item.get("encrypted_content"))
        if isinstance(content, list):
            self._turn["thinking_blocks"] = [*self._turn.get("thinking_blocks", ()), *content]
        elif content:
            self._turn.setdefault(ENVELOPES, []).append(content)
        elif item.get("encrypted_content"):
            self._dropped["encrypted_content"] = None

    def function_call(self, item: Json) -> None:
        self._call(item, text_in(item, "arguments"))

    def custom_tool_call(self, item: Json) -> None:
        self._call(item, arguments_of_input(text_in(item, "input")))

    def _call(self, item: Json, arguments: str) -> None:
        namespace = None if item.get("namespace") is None else text_in(item, "namespace")
        function = {"name": function_name(text_in(item, "name"), namespace), "arguments": arguments}
        self._begin()
        self._turn_places.append(self._position)
        called = {"id": text_in(item, "call_id"), "type": "function", "function": function}
        self._turn.setdefault("tool_calls", []).append(called)

    def result(self, item: Json) -> None:
        call_id = text_in(item, "call_id")
        output = self._content(item.get("output"), ".output")
        self.close()
        if isinstance(output, list) and all(block["type"] == "text" for block in output):
            output = "\n".join(block["text"] for block in output)
        self.append({"role": "tool", "tool_call_id": call_id, "content": output}, self._position)

    def _content(self, content: Any, path: str) -> str | list[Json]:
        """Translates content into a string or blocks."""
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise fault(path, "must be a string or an array of content parts.")
        blocks = each(content, self._block, path)
        if not blocks:
            return ""
        return blocks[0]["text"] if len(blocks) == 1 and blocks[0].keys() == {"type", "text"} else blocks

    def _block(self, given: Any) -> Json:
        part: Json = require(given, dict, "", "an object")
        kind = part.get("type")
        self._dropped.add_unhandled(part, HANDLED_OF_PARTS.get(kind, ()) if isinstance(kind, str) else ())
        if kind in TEXTS:
            block: Json = {"type": "text", "text": text_in(part, "text")}
        elif kind == "input_image":
            block = {"type": "image_url", "image_url": self._image(part)}
        elif kind == "input_file":
            if part.get("file_data") is None:
                raise fault(f".{_first(part, 'file_id', 'file_url', 'file_data')}", NO_FILES)
            if part.get("detail") not in (None, "auto"):  # in a chat only images have it
                self._dropped["detail"] = None
            file = {"file_data": text_in(part, "file_data")}
            block = {"type": "file", "file": {**file, **_kept(part, "filename")}}
        elif kind == "input_audio":
            block = {"type": "input_audio", "input_audio": part.get("input_audio")}
        else:
            raise fault(".type", "must be one of input_text, input_image, input_file, input_audio.")
        return {**block, **_kept(part, "cache_control")}

    def _image(self, part: Json) -> Json:
        if part.get("image_url") is None:
            raise fault(f".{_first(part, 'file_id', 'image_url')}", NO_FILES)
        detail = part.get("detail")
        if detail == "original":  # a chat has no such value
            self._dropped["detail"] = None
        fitting = {} if detail in (None, "auto") else {"detail": "high" if detail == "original" else detail}
        return {"url": text_in(part, "image_url"), **fitting}

    def _words(self, content: Any) -> tuple[str, str]:
        if isinstance(content, str):
            return content, ""
        parts = require(content, list, ".content", "a string or an array of content parts")
        words = each(parts, self._words_of_part, ".content")
        return "".join(text for text, _ in words), "".join(refusal for _, refusal in words)

    def _words_of_part(self, part: Any) -> tuple[str, str]:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, dict):
            self._dropped.add_unhandled(part, HANDLED_OF_SPEECH)
        if kind == "refusal":
            return "", text_in(part, "refusal")
        if kind not in TEXTS:
            raise fault(".type", "must be output_text or refusal.")
        return text_in(part, "text"), ""


KINDS: Mapping[str, Callable[[Conversation, Json], None]] = {
    "message": Conversation.message,
    ADDED: Conversation.added_tools,
    "reasoning": Conversation.reasoning,
    "function_call": Conversation.function_call,
    "custom_tool_call": Conversation.custom_tool_call,
    "function_call_output": Conversation.result,
    "custom_tool_call_output": Conversation.result,
}


def _texts(item: Json, name: str) -> list[str]:
    """Returns the texts in a list of parts of a reasoning item."""
    parts = item.get(name)
    if parts is None:
        return []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise fault(f".{name}", "must be an array of content parts.")
    return each(parts, lambda part: text_in(part, "text"), f".{name}")


def _first(part: Json, *names: str) -> str:
    return next((name for name in names if part.get(name) is not None), names[-1])


def _kept(part: Json, name: str) -> Json:
    return {name: part[name]} if part.get(name) is not None else {}
