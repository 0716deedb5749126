"""Both dialects pass the points that the compliance suite of Open Responses checks, in each of its cases."""

from typing import Any, NamedTuple

import pytest

from tests.inference.responses.events import Events
from tests.servers.customer import Customer

Json = dict[str, Any]
Types = tuple[type, ...]

NULL = type(None)
# Maps each field that every response has to its types.
FIELDS: dict[str, Types] = {
    **dict.fromkeys(("id", "status", "model", "service_tier", "truncation"), (str,)),
    **dict.fromkeys(("created_at", "top_logprobs"), (int,)),
    **dict.fromkeys(("completed_at", "max_output_tokens", "max_tool_calls"), (int, NULL)),
    **dict.fromkeys(("error", "incomplete_details", "reasoning", "usage"), (dict, NULL)),
    **dict.fromkeys(("previous_response_id", "instructions", "safety_identifier", "prompt_cache_key"), (str, NULL)),
    **dict.fromkeys(("output", "tools"), (list,)),
    **dict.fromkeys(("parallel_tool_calls", "store", "background"), (bool,)),
    **dict.fromkeys(("top_p", "presence_penalty", "frequency_penalty", "temperature"), (int, float)),
    **dict.fromkeys(("text", "metadata"), (dict,)),
    "tool_choice": (str, dict),
}
WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}
PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


def item(role: str, content: Any) -> Json:
    return {"type": "message", "role": role, "content": content}


class Case(NamedTuple):
    """Holds a request, and the item that the answer must contain."""

    input: list[Json]
    slug: str = "echo"
    expected: str = "message"
    tools: tuple[Json, ...] = ()


CASES = {
    "basic": Case([item("user", "Say hello in exactly 3 words.")]),
    "system prompt": Case([item("system", "You are a pirate."), item("user", "Say hello.")]),
    "tool calling": Case([item("user", "What is the weather in Paris?")], "tools", "function_call", (WEATHER,)),
    "image": Case(
        [item("user", [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": PNG}])]
    ),
    "multi-turn": Case(
        [item("user", "My name is Alice."), item("assistant", "Hello Alice!"), item("user", "What is my name?")]
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("way", ["sim/test", "simanthropic/claude"])
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_response_has_every_field_and_the_item(account: Customer, way: str, case: Case, *, streams: bool) -> None:
    asked = {"model": f"{way}/{case.slug}", "input": case.input, "tools": list(case.tools), "stream": streams}
    reply = account.http.post("/v1/responses", json=asked)
    assert reply.status_code == 200, reply.text
    if streams:
        events = Events.of(reply)
        response = events.final
        if case.tools:
            added, done = events.named("response.output_item.added"), events.named("response.output_item.done")
            assert [event["item"]["type"] for event in (*added, *done)] == ["function_call"] * 2
            assert events.named("response.function_call_arguments.delta")
            assert events.named("response.function_call_arguments.done")
    else:
        response = reply.json()
    assert {name for name, types in FIELDS.items() if type(response[name]) not in types} == set()
    assert (response["object"], response["status"]) == ("response", "completed")
    assert case.expected in [item["type"] for item in response["output"]]
    for item in response["output"]:
        assert item["status"] == "completed"
        assert isinstance(item["id"], str)
    for tool in response["tools"]:
        assert {"type", "name", "description", "parameters", "strict"} <= tool.keys()
    usage = response["usage"]
    assert type(usage["input_tokens_details"]["cached_tokens"]) is int
    assert type(usage["output_tokens_details"]["reasoning_tokens"]) is int
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
