"""Answers Anthropic's Messages API, whose `input_tokens` exclude the tokens read from or written to the cache."""

import json
from collections.abc import Iterator
from hashlib import sha256

from simulator.answers import NOVEL, Answer, Tokens, ToolCall, answer
from simulator.behaviour import Behaviour
from simulator.call import Call, Event, Json, Kind, RefusedError, messages_question
from simulator.calling import number

_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_CITATIONS: list[Json] = [
    {
        "type": "web_search_result_location",
        "url": "https://cited.example/page",
        "title": "A page",
        "cited_text": "hello",
        "encrypted_index": "sim",
    },
    {
        "type": "char_location",
        "document_index": 1,
        "document_title": "A document",
        "cited_text": "there",
        "start_char_index": 6,
        "end_char_index": 11,
        "file_id": None,
    },
]
_OF_A_PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# A content block: a tool call, or the type of a block that has text.
_Block = str | ToolCall


class Messages:
    """Answers `/messages`."""

    dialect = "anthropic"

    def complete(self, call: Call) -> Json:
        """Answers in one body."""
        answered, tokens = _answer(call)
        usage = _start_usage(tokens, call)
        if usage is not None:
            usage["output_tokens"] = tokens.completion
        return {
            **_envelope(call, usage),
            "content": [_whole_block(call, block, answered) for block in _blocks(call, answered)],
            "stop_reason": _stop_reason(call, answered),
            "stop_sequence": answered.stop_sequence,
        }

    def events(self, call: Call) -> Iterator[Event]:
        """Answers in events: the message's start, its blocks, its end."""
        answered, tokens = _answer(call)
        message = {
            **_envelope(call, _start_usage(tokens, call)),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        if not call.behaviour.no_message_start:
            yield _event(Kind.STRUCTURE, "message_start", message=message)
        sent = 0
        for index, block in enumerate(_blocks(call, answered)):
            for event in _block_events(call, number(call, index), block, answered):
                yield event
                if event.kind is Kind.OUTPUT:
                    sent += 1
                    if call.behaviour.usage_every_chunk:
                        usage = _delta_usage(min(sent, tokens.completion), call)
                        yield _event(Kind.STRUCTURE, "message_delta", delta={}, **usage)
        # The stop reason and the usage come in one event, or the usage later in an event of its own.
        usage = _delta_usage(tokens.completion, call)
        if usage and call.behaviour.no_message_start:
            usage["usage"] = {**(_start_usage(tokens, call) or {}), "output_tokens": usage["usage"]["output_tokens"]}
        is_late = bool(call.behaviour.late_usage and usage)
        delta = {"stop_reason": _stop_reason(call, answered), "stop_sequence": answered.stop_sequence}
        yield _event(Kind.FINISH, "message_delta", delta=delta, **({} if is_late else usage))
        if is_late:
            yield _event(Kind.USAGE, "message_delta", delta={"stop_reason": None, "stop_sequence": None}, **usage)
        yield _event(Kind.DONE, "message_stop")


class MessageCount:
    """Answers `/messages/count_tokens` with the number that an answer would bill."""

    dialect = "anthropic"

    def complete(self, call: Call) -> Json:
        """Answers in one body."""
        question = messages_question({"max_tokens": 1, **call.body}, call.request.headers.get("anthropic-beta", ""))
        return {"input_tokens": 0 if call.behaviour.usage_shape == "zero" else question.prompt_tokens}

    def events(self, call: Call) -> Iterator[Event]:
        """Raises RefusedError, since a count cannot be streamed."""
        raise RefusedError("stream: Extra inputs are not permitted")


def _answer(call: Call) -> tuple[Answer, Tokens]:
    question = messages_question(call.body, call.request.headers.get("anthropic-beta", ""))
    answered = answer(question, call)
    return answered, Tokens(question.prompt_tokens, answered.tokens)


def _envelope(call: Call, usage: Json | None) -> Json:
    envelope: Json = {"id": f"msg_sim_{call.identity}", "type": "message", "role": "assistant", "model": call.model}
    if call.behaviour.extra_fields:
        envelope["sim_answer"] = {"kept": True}
    return envelope if usage is None else {**envelope, "usage": usage}


def _blocks(call: Call, answered: Answer) -> list[_Block]:
    reasoning: list[_Block] = ["thinking"] if answered.reasoning else []
    if call.behaviour.unknown_deltas:
        reasoning = ["sim_novel", *reasoning]
    return [*reasoning, *answered.tool_calls] if answered.tool_calls else [*reasoning, "text"]


def _empty_block(call: Call, block: _Block) -> Json:
    if isinstance(block, ToolCall):
        content: Json = {"type": "tool_use", "id": f"toolu_{block.identity}", "name": block.name, "input": {}}
    elif block == "thinking":
        content = {"type": "thinking", "thinking": "", "signature": ""}
    elif block == "sim_novel":
        content = {"type": "sim_novel", "novel": ""}
    else:
        content = {"type": "text", "text": ""}
    return {**content, "sim_block": "kept"} if call.behaviour.extra_fields else content


def _whole_block(call: Call, block: _Block, answered: Answer) -> Json:
    content = _empty_block(call, block)
    if isinstance(block, ToolCall):
        content["input"] = {} if call.behaviour.cut_arguments else json.loads(block.arguments.strip() or "{}")
    elif block == "thinking":
        content |= {"thinking": "".join(answered.reasoning), "signature": _signature(answered)}
    elif block == "sim_novel":
        content |= {"novel": "".join(NOVEL), "steps": [{"index": 0, "said": "".join(NOVEL)}]}
    else:
        content["text"] = "".join(answered.text)
        if _citations(call.behaviour):
            content["citations"] = _citations(call.behaviour)
    return content


def _block_events(call: Call, index: Json, block: _Block, answered: Answer) -> Iterator[Event]:
    # A tool's start is output: it carries the name. The other blocks start empty.
    kind = Kind.OUTPUT if isinstance(block, ToolCall) else Kind.STRUCTURE
    if isinstance(block, ToolCall) or not call.behaviour.no_block_start:
        yield _event(kind, "content_block_start", **index, content_block=_empty_block(call, block))
    for delta in _deltas(block, answered, call.behaviour):
        is_silent = delta["type"] in ("signature_delta", "citations_delta") or delta.get("partial_json") == ""
        kind = Kind.STRUCTURE if is_silent else Kind.OUTPUT
        if call.behaviour.extra_fields:
            delta["sim_delta"] = True
        yield _event(kind, "content_block_delta", **index, delta=delta)
    if not call.behaviour.no_block_stop:
        yield _event(Kind.STRUCTURE, "content_block_stop", **index)


def _deltas(block: _Block, answered: Answer, behaviour: Behaviour) -> Iterator[Json]:
    if isinstance(block, ToolCall):
        # The first piece is always empty, and it is the only piece of a call without arguments.
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *block.fragments))
    elif block == "thinking":
        yield from ({"type": "thinking_delta", "thinking": piece} for piece in answered.reasoning)
        yield {"type": "signature_delta", "signature": _signature(answered)}
    elif block == "sim_novel":
        yield from (
            {"type": "sim_novel_delta", "novel": piece, "steps": [{"index": 0, "said": piece}]} for piece in NOVEL
        )
    else:
        # Citations come before the text, as in the API.
        yield from ({"type": "citations_delta", "citation": citation} for citation in _citations(behaviour))
        yield from ({"type": "text_delta", "text": piece} for piece in answered.text)


def _citations(behaviour: Behaviour) -> list[Json]:
    pages = [{**_CITATIONS[0], "url": f"https://cited.example/{number}"} for number in range(behaviour.lists)]
    return [*(_CITATIONS if behaviour.citations else ()), *pages]


def _event(kind: Kind, name: str, **data: object) -> Event:
    return Event(kind, {"type": name, **data}, name)


def _start_usage(tokens: Tokens, call: Call) -> Json | None:
    """Returns the usage at the start: the prompt and, as Anthropic does, one token of the answer. None without usage.

    Only a negative number or a fraction can be contradictory here: the counts are disjoint, and there is no total.
    """
    behaviour = call.behaviour
    if behaviour.no_usage:
        return None
    written = {
        "ephemeral_5m_input_tokens": behaviour.cache_write_5m,
        "ephemeral_1h_input_tokens": behaviour.cache_write_1h,
    }
    contradicted = {"cached": -1, "negative": -1, "fraction": tokens.prompt + 0.5}
    usage = {
        "input_tokens": contradicted.get(behaviour.bad_usage or "", tokens.prompt),
        "cache_creation_input_tokens": sum(written.values()),
        "cache_read_input_tokens": behaviour.cached,
        "cache_creation": written,
        "output_tokens": min(tokens.completion, 1),
        "service_tier": "standard",
        **call.marked,
    }
    if behaviour.bad_usage == "written":
        usage["cache_creation_input_tokens"] //= 2
    match behaviour.usage_shape:
        case "zero" | "zero-prompt":
            usage |= dict.fromkeys(_OF_A_PROMPT, 0)
        case "inclusive":
            usage["input_tokens"] += behaviour.cached
            usage["prompt_tokens_details"] = {"cached_tokens": behaviour.cached}
    return usage


def _delta_usage(completion: int, call: Call) -> dict[str, Json]:
    """Returns the `usage` of an event with the tokens produced so far; null means unchanged since the start."""
    if call.behaviour.no_usage:
        return {}
    prompt = dict.fromkeys(_OF_A_PROMPT, 0 if call.behaviour.usage_shape == "prompt-once" else None)
    is_zero = call.behaviour.usage_shape == "zero"
    return {"usage": {**prompt, "output_tokens": 0 if is_zero else completion, **call.marked}}


def _stop_reason(call: Call, answered: Answer) -> str:
    return call.behaviour.finish or _FINISH.get(answered.finish, answered.finish)


def _signature(answered: Answer) -> str:
    """Signs the thinking, so that a test can tell whether it came back unchanged."""
    return "sig-sim-" + sha256("".join(answered.reasoning).encode(errors="surrogatepass")).hexdigest()[:32]
