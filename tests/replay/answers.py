"""Reads what an answer contains in any form: text, reasoning, refusal, tool calls and the reason for its end.

There is one reader for each form, both for recordings and for the gateway's answers. It uses none of the product's
code. A stream is put together first: strings of a delta are concatenated, lists of numbered objects are merged by
`index`, other lists are appended, objects are merged by key, and otherwise the last value wins (docs/providers.md).
Identifiers are not concatenated.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]

ONCE = ("id", "type", "format", "role")
# A chat has the model's reasoning in the first of these members that is present.
REASONING = ("reasoning_content", "reasoning")
SPOKEN = ("role", "content", "refusal", *REASONING, "tool_calls")
FINISHES = {"stop": "stop", "length": "length", "content_filter": "content_filter", "tool_calls": "tool_calls"}
# Providers use these words for the same reasons. Any other word for the end counts as `stop`.
SYNONYMS = {"function_call": "tool_calls", "tool_use": "tool_calls", "max_tokens": "length"}
STOP_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Holds one call of a tool. `arguments` are parsed JSON, or the text itself if it is not JSON."""

    id: str
    name: str
    arguments: Any


@dataclass(slots=True)
class AnsweredChoice:
    """Holds one choice of an answer.

    `finish` is one of chat's words, `cited` lists the places that it cites, `signed` lists the signatures of its
    thinking, and `more` has the message's other members.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    cited: list[str] = field(default_factory=list)
    signed: list[str] = field(default_factory=list)
    finish: str | None = None
    more: Json = field(default_factory=dict)


def of_chat(answer: Mapping[str, Any]) -> dict[int, AnsweredChoice]:
    """Reads the choices of a chat completion."""
    found = {}
    for position, choice in enumerate(answer.get("choices") or ()):
        result = _of_message(choice.get("message") or {})
        result.finish = choice.get("finish_reason")
        found[_index(choice, position)] = result
    return found


def of_completion(answer: Mapping[str, Any]) -> dict[int, AnsweredChoice]:
    """Reads the choices of a text completion."""
    return {
        _index(choice, position): AnsweredChoice(
            text=choice.get("text") or "", reasoning=_first(choice, REASONING), finish=choice.get("finish_reason")
        )
        for position, choice in enumerate(answer.get("choices") or ())
    }


def of_message(message: Mapping[str, Any]) -> AnsweredChoice:
    """Reads a message of the Messages API. Blocks that chat lacks (tools that the provider ran) are skipped."""
    choice = AnsweredChoice()
    for block in message["content"]:
        match block["type"]:
            case "text":
                choice.text += block.get("text") or ""
                choice.cited += map(_place, block.get("citations") or ())
            case "thinking":
                choice.reasoning += block.get("thinking") or ""
                choice.signed += _proof(block)
            case "redacted_thinking":
                choice.signed += _proof(block)
            case "tool_use":
                choice.calls.append(ToolCall(block.get("id") or "", block.get("name") or "", block.get("input") or {}))
    reason = message.get("stop_reason")
    choice.finish = STOP_REASONS.get(reason, "stop") if reason else None
    return choice


def of_response(response: Mapping[str, Any]) -> AnsweredChoice:
    """Reads a response. If it is incomplete, it gives a reason; if it calls a tool, it ended with `tool_calls`."""
    choice = AnsweredChoice()
    for item in response["output"]:
        match item["type"]:
            case "reasoning":
                choice.reasoning += "".join(part.get("text") or "" for part in item.get("content") or ())
            case "message":
                for part in item["content"]:
                    choice.text += part.get("text") or ""
                    choice.refusal += part.get("refusal") or ""
                    choice.cited += map(_place, part.get("annotations") or ())
            case "function_call":
                choice.calls.append(ToolCall(item["call_id"], item["name"], _parsed(item["arguments"])))
            case "custom_tool_call":
                choice.calls.append(ToolCall(item["call_id"], item["name"], _parsed(item["input"])))
    if response["status"] == "incomplete":
        reason = response["incomplete_details"]["reason"]
        choice.finish = "length" if reason == "max_output_tokens" else reason
    elif response["status"] == "completed":
        choice.finish = "tool_calls" if choice.calls else "stop"
    return choice


def _of_message(message: Mapping[str, Any]) -> AnsweredChoice:
    message = _flat(message)
    choice = AnsweredChoice(
        text=message.get("content") or "",
        reasoning=_first(message, REASONING),
        refusal=message.get("refusal") or "",
    )
    for call in message.get("tool_calls") or ():
        called = call.get("function") or call.get("custom") or {}
        given = called.get("arguments", called.get("input"))
        choice.calls.append(ToolCall(call.get("id") or "", called.get("name") or "", _parsed(given)))
    for annotation in message.get("annotations") or ():
        choice.cited += [page["url"]] if (page := annotation.get("url_citation") or {}).get("url") else []
    choice.cited += [_place(cited) for cited in message.get("citations") or () if isinstance(cited, dict)]
    for block in message.get("thinking_blocks") or ():
        choice.signed += _proof(block)
    choice.more = {name: value for name, value in message.items() if name not in SPOKEN and value not in (None, "", [])}
    return choice


def with_old_call(choice: AnsweredChoice) -> AnsweredChoice:
    """Converts an old `function_call` to a tool call with an empty id, as forms without `function_call` have it."""
    old = choice.more.get("function_call") or {}
    if choice.calls or not old.get("name"):
        return choice
    return replace(choice, calls=[ToolCall("", old["name"], _parsed(old.get("arguments")))])


def _place(cited: Mapping[str, Any]) -> str:
    return str(cited.get("url") or cited.get("source") or cited.get("document_index", cited.get("index")))


def _proof(block: Mapping[str, Any]) -> list[str]:
    """Returns the signature of thinking, or the encrypted thinking itself."""
    return [proof] if (proof := block.get("signature") or block.get("data")) else []


def _flat(message: Mapping[str, Any]) -> Json:
    """Converts a message or a delta whose content is a list of blocks to one with strings.

    Blocks without words (references, images) are left out.
    """
    content = message.get("content")
    if isinstance(content, dict):  # requested JSON that came as an object: clients expect its text
        return {**message, "content": json.dumps(content, separators=(",", ":"), ensure_ascii=False)}
    if not isinstance(content, list):
        return dict(message)
    flat = {name: value for name, value in message.items() if name != "content"}
    for block in content:
        match block:
            case {"type": "thinking", "thinking": [*parts]}:
                name, text = "reasoning_content", "".join(part.get("text") or "" for part in parts)
            case {"type": "thinking", "thinking": str(text)}:
                name = "reasoning_content"
            case {"type": "refusal", "refusal": str(text)}:
                name = "refusal"
            case {"text": str(text)}:
                name = "content"
            case _:
                continue
        flat[name] = (flat.get(name) or "") + text
    return flat


def _parsed(given: Any) -> Any:
    """Parses arguments as JSON; returns the text itself if it is not JSON, and `{}` if it is empty."""
    if not isinstance(given, str):
        return given or {}
    try:
        return json.loads(given) if given else {}
    except ValueError:
        return given


def _first(source: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((source[name] for name in names if isinstance(source.get(name), str) and source[name]), "")


def _index(choice: Mapping[str, Any], position: int) -> int:
    index = choice.get("index")
    return index if type(index) is int else position


def set_api_finish(choice: AnsweredChoice) -> AnsweredChoice:
    """Sets a recorded choice's finish to one of the API's four words, which is `tool_calls` if it called any."""
    word = SYNONYMS.get(choice.finish or "", choice.finish or "")
    choice.finish = FINISHES.get(word, "stop")
    if choice.finish == "stop" and choice.calls:
        choice.finish = "tool_calls"
    return choice


def joined_chat(chunks: Iterable[Json]) -> Json:
    """Builds the whole chat or text completion from a stream."""
    answer: Json = {}
    choices: dict[int, Json] = {}
    calls: dict[int, _Calls] = {}
    for chunk in chunks:
        answer |= {name: value for name, value in chunk.items() if name != "choices" and value is not None}
        for choice in chunk.get("choices") or ():
            index = _index(choice, 0)
            known = choices.setdefault(index, {"index": index, "message": {}})
            if known.get("finish_reason"):
                continue  # a choice ends with its finish
            delta = _flat(choice.get("delta") or {})
            calls.setdefault(index, _Calls()).add(delta.pop("tool_calls", None) or ())
            known["message"] = _merged(known["message"], delta)
            if isinstance(choice.get("text"), str):
                known["text"] = known.get("text", "") + choice["text"]
            if choice.get("logprobs"):
                known["logprobs"] = _extended(known.get("logprobs") or {}, choice["logprobs"])
            known |= {
                name: value
                for name, value in choice.items()
                if name not in ("index", "delta", "text", "logprobs") and value is not None
            }
    for index, choice in choices.items():
        if calls[index].listed:
            choice["message"]["tool_calls"] = calls[index].listed
    return {**answer, "choices": [choices[index] for index in sorted(choices)]}


class _Calls:
    """Collects one choice's tool calls from their fragments, by number, or by id if there are no numbers."""

    def __init__(self) -> None:
        self.listed: list[Json] = []
        self._by_key: dict[Any, Json] = {}
        self._last: Any = None

    def add(self, fragments: Iterable[Json]) -> None:
        for fragment in fragments:
            key = fragment.get("index")
            if key is None:
                key = fragment.get("id") or self._last
            self._last = key
            if key not in self._by_key:
                self._by_key[key] = {}
                self.listed.append(self._by_key[key])
            call = self._by_key[key]
            for kind, text in (("function", "arguments"), ("custom", "input")):
                if isinstance(piece := fragment.get(kind), dict):
                    called = call.setdefault(kind, {})
                    called["name"] = called.get("name") or piece.get("name")
                    given = piece.get(text)
                    given = json.dumps(given) if isinstance(given, dict) else given or ""
                    called[text] = called.get(text, "") + given
            for name, value in fragment.items():
                if name not in ("index", "function", "custom") and value is not None:
                    call.setdefault(name, value)


def joined_message(payloads: Iterable[Json]) -> Json:
    """Builds the whole message from a stream of the Messages API."""
    message: Json = {}
    blocks: dict[int, Json] = {}
    inputs: dict[int, str] = {}
    usage: Json = {}
    for event in payloads:
        match event.get("type"):
            case "message_start":
                message |= event["message"]
                usage |= _known(event["message"].get("usage"))
            case "content_block_start":
                blocks[event["index"]] = event["content_block"]
            case "content_block_delta":
                delta = {name: value for name, value in event["delta"].items() if name != "type"}
                if "partial_json" in delta:
                    inputs[event["index"]] = inputs.get(event["index"], "") + delta.pop("partial_json")
                if "citation" in delta:
                    delta["citations"] = [*(blocks[event["index"]].get("citations") or ()), delta.pop("citation")]
                blocks[event["index"]] = _merged(blocks[event["index"]], delta)
            case "message_delta":
                message |= event.get("delta") or {}
                message |= {name: value for name, value in event.items() if name not in ("type", "delta", "usage")}
                usage |= _known(event.get("usage"))
    for index, text in inputs.items():
        blocks[index] = {**blocks[index], "input": _parsed(text)}
    return {**message, "content": [blocks[index] for index in sorted(blocks)], "usage": usage}


def joined_response(payloads: Iterable[Json]) -> Json:
    """Returns the response in the last event of a stream, or an empty object."""
    return next(
        (event["response"] for event in payloads if event.get("type") in ("response.completed", "response.incomplete")),
        {},
    )


def _known(usage: Any) -> Json:
    """Drops nulls, which leave earlier counts unchanged."""
    return {name: value for name, value in (usage or {}).items() if value is not None}


def _merged(known: Any, added: Any) -> Any:
    if isinstance(known, str) and isinstance(added, str):
        return known + added
    if isinstance(known, dict) and isinstance(added, dict):
        both = dict(known)
        for name, value in added.items():
            if value is not None or name not in both:
                both[name] = value if name in ONCE or both.get(name) is None else _merged(both[name], value)
        return both
    if _numbered(known) and _numbered(added):
        by_index = {item["index"]: item for item in known}
        for item in added:
            by_index[item["index"]] = _merged(by_index.get(item["index"], {}), item)
        return list(by_index.values())
    if isinstance(known, list) and isinstance(added, list):
        return [*known, *(item for item in added if item not in known)]
    return added


def _numbered(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and type(item.get("index")) is int for item in value)


def _extended(known: Json, added: Json) -> Json:
    """Merges log probabilities: the lists of successive chunks are appended."""
    both = dict(known)
    for name, value in added.items():
        before = both.get(name)
        both[name] = before + value if isinstance(before, list) and isinstance(value, list) else value
    return both
