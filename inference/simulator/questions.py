"""Reading what a request asks, in each dialect."""

from collections.abc import Iterable, Sequence
from typing import Any

from inference.simulator.answers import Question, count
from inference.simulator.call import Json, RefusedError


def chat_question(body: Json) -> Question:
    """Read an OpenAI conversation."""
    messages = _messages(body)
    texts = [_text(message.get("content")) for message in messages]
    return Question(
        text=_last_of_user(messages, texts),
        prompt_tokens=sum(map(count, texts)),
        tool_result=_tool_result(messages, texts),
        tools=_functions(body),
        may_call=body.get("tool_choice") != "none",
        parallel=body.get("parallel_tool_calls") is not False,
        max_tokens=_limit(body),
        stop=_stops(body),
    )


def text_questions(body: Json) -> list[Question]:
    """Read the prompts of a text completion; token ids count one each and are echoed as numbers."""
    limit, stops = _limit(body), _stops(body)
    texts = [prompt if isinstance(prompt, str) else " ".join(map(str, prompt)) for prompt in _prompts(body)]
    return [Question(text, count(text), may_call=False, max_tokens=limit, stop=stops) for text in texts]


def messages_question(body: Json) -> Question:
    """Read a conversation of Anthropic's Messages API, as strictly as the API does."""
    if not isinstance(body.get("max_tokens"), int):
        raise RefusedError("max_tokens: Field required")
    messages = _messages(body)
    for index, message in enumerate(messages):
        if message.get("role") not in {"user", "assistant"}:
            raise RefusedError(f'messages.{index}: Unexpected role "{message.get("role")}".')
    texts = [_text(message.get("content")) for message in messages]
    choice = body.get("tool_choice") or {}
    results = _result_blocks(messages[-1])
    return Question(
        text=_last_of_user(messages, texts),
        prompt_tokens=sum(map(count, texts))
        + sum(map(count, _all_results(messages)))
        + count(_text(body.get("system"))),
        tool_result=" ".join(results) if results else None,
        tools=_forced_or([tool["name"] for tool in body.get("tools") or () if "name" in tool], choice.get("name")),
        may_call=choice.get("type") != "none",
        parallel=choice.get("disable_parallel_tool_use") is not True,
        max_tokens=body["max_tokens"],
        stop=body.get("stop_sequences") or (),
    )


def embedded_inputs(body: Json) -> list[str]:
    """Read the inputs of an embeddings request: one text, several, one list of token ids, several."""
    inputs = body.get("input")
    if isinstance(inputs, str):
        return [inputs]
    if not isinstance(inputs, list) or not inputs:
        raise RefusedError("Invalid 'input': expected a text, or a list of texts or tokens.", "input")
    items = [inputs] if isinstance(inputs[0], int) else inputs
    return [item if isinstance(item, str) else " ".join(map(str, item)) for item in items]


def _messages(body: Json) -> list[Json]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise RefusedError("Invalid 'messages': expected a list with at least one message.", "messages")
    return messages


def _last_of_user(messages: Sequence[Json], texts: Sequence[str]) -> str:
    """Return the last text that a user wrote; a message of tool results alone is passed over."""
    said = [text for message, text in zip(messages, texts, strict=True) if message.get("role") == "user"]
    return next((text for text in reversed(said) if text), "")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: Iterable[Any] = content if isinstance(content, list) else ()
    return " ".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _tool_result(messages: Sequence[Json], texts: Sequence[str]) -> str | None:
    """Return the results that end an OpenAI conversation, or None where it does not end with one."""
    results = []
    for message, text in zip(reversed(messages), reversed(texts), strict=True):
        if message.get("role") != "tool":
            break
        results.append(text)
    return " ".join(reversed(results)) if results else None


def _result_blocks(message: Json) -> list[str]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    return [
        _text(block.get("content"))
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "tool_result"
    ]


def _all_results(messages: Sequence[Json]) -> Iterable[str]:
    return (text for message in messages for text in _result_blocks(message))


def _functions(body: Json) -> list[str]:
    names = [tool["function"]["name"] for tool in body.get("tools") or () if "function" in tool]
    choice = body.get("tool_choice")
    return _forced_or(names, choice.get("function", {}).get("name") if isinstance(choice, dict) else None)


def _forced_or(names: list[str], forced: str | None) -> list[str]:
    """Leave only the tool that the caller insists on, where there is one."""
    return [forced] if forced else names


def _prompts(body: Json) -> list[str | list[int]]:
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise RefusedError("Invalid 'prompt': expected a text, or a list of texts or tokens.", "prompt")
    return [prompt] if isinstance(prompt[0], int) else prompt


def _limit(body: Json) -> int | None:
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    return limit if isinstance(limit, int) else None


def _stops(body: Json) -> list[str]:
    stop = body.get("stop")
    return [stop] if isinstance(stop, str) else list(stop or ())
