"""Anthropic's Messages API."""

from collections.abc import Iterator
from hashlib import sha256

import orjson

from inference.simulator import usage
from inference.simulator.answers import Answer, ToolCall, answer
from inference.simulator.call import Call, Event, Json, Kind
from inference.simulator.questions import messages_question

_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class Messages:
    """`/messages`."""

    dialect = "anthropic"

    def complete(self, call: Call) -> Json:
        """Answer in one body."""
        said, tokens = _answer(call)
        return {
            **_envelope(call, usage.anthropic_whole(tokens, call.behaviour)),
            "content": [_whole_block(call, block, said) for block in _blocks(said)],
            "stop_reason": _stop_reason(call, said),
            "stop_sequence": said.stop_sequence,
        }

    def events(self, call: Call) -> Iterator[Event]:
        """Answer in events: the message's start, its blocks, its end."""
        said, tokens = _answer(call)
        message = {
            **_envelope(call, usage.anthropic_start(tokens, call.behaviour)),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        yield _event(Kind.STRUCTURE, "message_start", message=message)
        sent = 0
        for index, block in enumerate(_blocks(said)):
            for event in _block_events(call, index, block, said):
                yield event
                sent += event.kind is Kind.OUTPUT
                if event.kind is Kind.OUTPUT and call.behaviour.usage_every_chunk:
                    so_far = usage.Tokens(tokens.prompt, min(sent, tokens.completion))
                    yield _message_delta(Kind.STRUCTURE, {}, usage.anthropic_delta(so_far, call.behaviour))
        yield from _ending(call, said, tokens)


def _answer(call: Call) -> tuple[Answer, usage.Tokens]:
    question = messages_question(call.body)
    said = answer(question, call.behaviour, call.described())
    return said, usage.Tokens(question.prompt_tokens, said.tokens, said.reasoning_tokens)


def _envelope(call: Call, counted: Json | None) -> Json:
    envelope: Json = {"id": f"msg_sim_{call.identity}", "type": "message", "role": "assistant", "model": call.model}
    if call.behaviour.extra_fields:
        envelope["sim_answer"] = {"kept": True}
    return envelope if counted is None else {**envelope, "usage": counted}


def _blocks(said: Answer) -> list[str | ToolCall]:
    """The content blocks in order; a block of text is named by its type."""
    blocks: list[str | ToolCall] = ["thinking"] if said.reasoning else []
    return [*blocks, *said.tool_calls] if said.tool_calls else [*blocks, "text"]


def _whole_block(call: Call, block: str | ToolCall, said: Answer) -> Json:
    content = _empty_block(call, block)
    if isinstance(block, ToolCall):
        content["input"] = orjson.loads(block.arguments or "{}")
    elif block == "thinking":
        content |= {"thinking": "".join(said.reasoning), "signature": _signature(said)}
    else:
        content["text"] = "".join(said.text)
    return content


def _empty_block(call: Call, block: str | ToolCall) -> Json:
    content: Json = {"type": "text", "text": ""}
    if isinstance(block, ToolCall):
        content = {"type": "tool_use", "id": f"toolu_{block.identity}", "name": block.name, "input": {}}
    elif block == "thinking":
        content = {"type": "thinking", "thinking": "", "signature": ""}
    return {**content, "sim_block": "kept"} if call.behaviour.extra_fields else content


def _block_events(call: Call, index: int, block: str | ToolCall, said: Answer) -> Iterator[Event]:
    # A tool's start is output: it carries the name. The other blocks start empty.
    kind = Kind.OUTPUT if isinstance(block, ToolCall) else Kind.STRUCTURE
    yield _event(kind, "content_block_start", index=index, content_block=_empty_block(call, block))
    for delta in _deltas(block, said):
        marked = {**delta, "sim_delta": True} if call.behaviour.extra_fields else delta
        kind = Kind.STRUCTURE if delta["type"] == "signature_delta" else Kind.OUTPUT
        yield _event(kind, "content_block_delta", index=index, delta=marked)
    yield _event(Kind.STRUCTURE, "content_block_stop", index=index)


def _deltas(block: str | ToolCall, said: Answer) -> Iterator[Json]:
    if isinstance(block, ToolCall):
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in block.fragments)
    elif block == "thinking":
        yield from ({"type": "thinking_delta", "thinking": piece} for piece in said.reasoning)
        yield {"type": "signature_delta", "signature": _signature(said)}
    else:
        yield from ({"type": "text_delta", "text": piece} for piece in said.text)


def _ending(call: Call, said: Answer, tokens: usage.Tokens) -> Iterator[Event]:
    """Report the reason and the usage in one event, or the usage later in its own."""
    delta: Json = {"stop_reason": _stop_reason(call, said), "stop_sequence": said.stop_sequence}
    counted = usage.anthropic_delta(tokens, call.behaviour)
    late = call.behaviour.late_usage and counted is not None
    yield _message_delta(Kind.FINISH, delta, None if late else counted)
    if late:
        yield _message_delta(Kind.USAGE, {"stop_reason": None, "stop_sequence": None}, counted)
    yield _event(Kind.DONE, "message_stop")


def _message_delta(kind: Kind, delta: Json, counted: Json | None) -> Event:
    if counted is None:
        return _event(kind, "message_delta", delta=delta)
    return _event(kind, "message_delta", delta=delta, usage=counted)


def _event(kind: Kind, name: str, **data: object) -> Event:
    return Event(kind, {"type": name, **data}, name)


def _stop_reason(call: Call, said: Answer) -> str:
    return call.behaviour.finish or _FINISH.get(said.finish, said.finish)


def _signature(said: Answer) -> str:
    """Sign the thinking, so that a test can tell whether it came back as it was."""
    return "sig-sim-" + sha256("".join(said.reasoning).encode()).hexdigest()[:32]
