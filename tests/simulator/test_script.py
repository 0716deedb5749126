"""Tests an agent's turns, which the user writes and the simulated provider plays in both dialects."""

from typing import Any

import orjson

from tests.simulator.process import Provider

Json = dict[str, Any]

STEPS: list[Any] = [
    {"name": "read", "arguments": {"path": "a"}},
    {"name": "run", "arguments": {"cmd": "b"}},
    "All done.",
]
ASKED = f"Do it. <script>{orjson.dumps(STEPS).decode()}</script>"


def test_an_openai_conversation_goes_through_the_steps(provider: Provider) -> None:
    messages: list[Json] = [{"role": "user", "content": ASKED}]
    for step in STEPS[:2]:
        message = provider.post("/v1/chat/completions", {"model": "script", "messages": messages})["choices"][0][
            "message"
        ]
        (call,) = message["tool_calls"]
        assert (call["function"]["name"], orjson.loads(call["function"]["arguments"])) == (*step.values(),)
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": "<script>[]</script>"}]
    last = provider.post("/v1/chat/completions", {"model": "script", "messages": messages})["choices"][0]
    assert (last["message"]["content"], last["finish_reason"]) == ("All done.", "stop")


def test_an_anthropic_conversation_goes_through_the_steps(provider: Provider) -> None:
    asked: list[Json] = [{"role": "user", "content": "before"}, {"role": "user", "content": ASKED}]
    for step in STEPS[:2]:
        answer = provider.post("/v1/messages", {"model": "script", "max_tokens": 99, "messages": asked})
        (use,) = answer["content"]
        assert (use["name"], use["input"]) == (*step.values(),)
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "fine"}
        asked += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    last = provider.post("/v1/messages", {"model": "script", "max_tokens": 99, "messages": asked})
    assert (last["content"][0]["text"], last["stop_reason"]) == ("All done.", "end_turn")
