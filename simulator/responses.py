"""Answers OpenAI's Responses API: reasoning, a message or calls as items, whole or as events, with their usage."""

from collections.abc import Iterator
from typing import Any

from simulator.answers import Answer, Tokens, answer
from simulator.call import Call, Event, Json, Kind, Question, RefusedError, chat_question
from simulator.usage import counts

_REPEATED = ("instructions", "max_output_tokens", "metadata", "temperature", "text")
_FIELDS = {"function_call": "arguments", "custom_tool_call": "input"}


class Responses:
    """Answers `/responses`."""

    dialect = "openai"

    def complete(self, call: Call) -> Json:
        """Answers in one body."""
        answered, prompt = _answer(call)
        return _response(call, _items(call, answered), answered, prompt)

    def events(self, call: Call) -> Iterator[Event]:
        """Answers in numbered events, of which the last has the usage."""
        answered, prompt = _answer(call)
        items = _items(call, answered)
        numbers = iter(range(1_000_000))

        def event(kind: Kind, name: str, **data: Any) -> Event:
            name = f"response.{name}"
            return Event(kind, {"type": name, "sequence_number": next(numbers), **data}, name)

        begun = {**_response(call, [], answered, prompt), "status": "in_progress", "usage": None}
        yield event(Kind.STRUCTURE, "created", response=begun)
        yield event(Kind.STRUCTURE, "in_progress", response=begun)
        for index, item in enumerate(items):
            place: Json = {"item_id": item["id"], "output_index": index}
            kind = Kind.OUTPUT if "name" in item else Kind.STRUCTURE
            empty = {
                name: [] if name == "content" else "" for name in ("content", "arguments", "input") if name in item
            }
            yield event(kind, "output_item.added", output_index=index, item={**item, **empty, "status": "in_progress"})
            part = item["content"][0] if "content" in item else None
            if part is not None:
                place["content_index"] = 0
                yield event(Kind.STRUCTURE, "content_part.added", **place, part={**part, "text": ""})
            name, pieces = _deltas(item, answered)
            more: Json = {"logprobs": []} if name == "output_text" else {}
            for piece in pieces:
                yield event(Kind.OUTPUT, f"{name}.delta", **place, delta=piece, **more)
            whole = {"text": "".join(pieces)} if part is not None else {_FIELDS[item["type"]]: "".join(pieces)}
            yield event(Kind.STRUCTURE, f"{name}.done", **place, **whole, **more)
            if part is not None:
                yield event(Kind.STRUCTURE, "content_part.done", **place, part=part)
            yield event(Kind.STRUCTURE, "output_item.done", output_index=index, item=item)
        last = _response(call, items, answered, prompt)
        yield event(Kind.FINISH, last["status"], response=last)
        yield Event(Kind.DONE, "[DONE]")


def _answer(call: Call) -> tuple[Answer, int]:
    question = _question(call.body)
    return answer(question, call), question.prompt_tokens


def _question(body: Json) -> Question:
    if body.get("store") is not False:
        raise RefusedError("This organization keeps nothing: 'store' must be false.", "store")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise RefusedError("Invalid 'input'.", "input")
    messages: list[Json] = [{"role": "system", "content": body.get("instructions") or ""}]
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            messages.append({"role": item["role"], "content": item["content"]})
        elif kind in ("function_call_output", "custom_tool_call_output"):
            messages.append({"role": "tool", "content": item["output"]})
    tools = [{"function": {"name": tool["name"]}} for tool in body.get("tools") or () if "name" in tool]
    return chat_question({"messages": messages, "tools": tools, "max_tokens": body.get("max_output_tokens")})


def _items(call: Call, answered: Answer) -> list[Json]:
    items: list[Json] = []
    if answered.reasoning:
        thought = {"type": "reasoning_text", "text": "".join(answered.reasoning)}
        both: Json = {"summary": [], "content": [thought], "encrypted_content": "sim"}
        items.append({"id": f"rs_{call.identity}", "type": "reasoning", **both})
    if answered.text:
        text = "".join(answered.text)
        part: Json = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        items.append({"id": f"msg_{call.identity}", "type": "message", "role": "assistant", "content": [part]})
    custom = {tool["name"] for tool in call.body.get("tools") or () if tool.get("type") == "custom"}
    for each in answered.tool_calls:
        called = {"id": f"fc_{each.identity}", "call_id": f"call_{each.identity}", "name": each.name}
        kind, field = ("custom_tool_call", "input") if each.name in custom else ("function_call", "arguments")
        items.append({**called, "type": kind, field: each.arguments})
    return [{**item, "status": "completed"} for item in items]


def _deltas(item: Json, answered: Answer) -> tuple[str, list[str]]:
    match item["type"]:
        case "reasoning":
            return "reasoning_text", list(answered.reasoning)
        case "message":
            return "output_text", list(answered.text)
        case "function_call":
            return "function_call_arguments", [item["arguments"]]
        case _:
            return "custom_tool_call_input", [item["input"]]


def _response(call: Call, items: list[Json], answered: Answer, prompt: int) -> Json:
    is_cut = answered.finish == "length"
    usage = counts(Tokens(prompt, answered.tokens, len(answered.reasoning)), call)
    return {
        "id": f"resp_sim_{call.identity}",
        "object": "response",
        "created_at": call.created,
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "error": None,
        "model": call.model,
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": call.body.get("tool_choice", "auto"),
        "tools": call.body.get("tools", []),
        "store": False,
        **{name: call.body[name] for name in _REPEATED if name in call.body},
        "usage": None
        if usage is None
        else {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": usage["prompt_tokens_details"]["cached_tokens"]},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": usage["completion_tokens_details"]["reasoning_tokens"]},
            "total_tokens": usage["total_tokens"],
            **call.marked,
        },
    }
