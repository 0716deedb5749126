"""What a provider signs or encrypts for its next turn comes back to it exactly where it was, in every API and way.

The simulated provider refuses a conversation in which a signature is missing, different or misplaced.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.catalogue import model, provider
from tests.inference.messages.events import Events as MessageEvents
from tests.inference.odd_answers import chunk, streamed
from tests.inference.odd_upstream import OddUpstream, listening
from tests.inference.responses.events import Events as ResponseEvents
from tests.inference.six_ways import blocks_of
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

Json = dict[str, Any]
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
BOTH: Json = {"role": "user", "content": "both please"}
SCHEMA: Json = {"type": "object", "properties": {"query": {"type": "string"}}}
TOOLS: list[Json] = [{"name": name, "input_schema": SCHEMA} for name in ("weather", "clock")]
FUNCTIONS: list[Json] = [{"type": "function", "name": each["name"], "parameters": SCHEMA} for each in TOOLS]
SIGNED = {
    "google": "tools+signs:google",
    "google-thinks": "tools+reasoning+signs:google",
    "openrouter": "tools+signs:openrouter",
    "openrouter-thinks": "tools+reasoning+signs:openrouter",
}
signed = pytest.mark.parametrize("slug", SIGNED)
streamed_or_whole = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
# Long answers are streamed from the provider and put together.
caps = pytest.mark.parametrize("cap", [64, 1000], ids=["short", "long"])

CALL: Json = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
DONE: list[Json] = [
    chunk({}, "tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
]


def google(signature: str) -> Json:
    return {"extra_content": {"google": {"thought_signature": signature}}}


def call(index: int, id: str, name: str, **fields: Any) -> Json:
    function = {"name": name, "arguments": '{"p":1}'}
    return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function, **fields}]}


# Maps a name to what an upstream streams, and to what its message must contain in the next turn.
ODD: dict[str, tuple[list[Json], Json]] = {
    "each-call-signed": (
        [chunk(call(0, "a", "f", **google("one"))), chunk(call(1, "b", "g", **google("two")))],
        {"calls": [google("one"), google("two")]},
    ),
    "signature-behind-its-call": (
        [chunk(call(0, "a", "f")), chunk({"tool_calls": [{"index": 0, **google("late"), "function": {}}]})],
        {"calls": [google("late")]},
    ),
    "signature-behind-arguments": (
        [
            chunk(call(0, "a", "f")),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": " "}}]}),
            chunk({"tool_calls": [{"index": 0, **google("late"), "function": {}}]}),
        ],
        {"calls": [google("late")]},
    ),
    "signature-twice": (
        [
            chunk(call(0, "a", "f", **google("one"))),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": ""}, **google("one")}]}),
        ],
        {"calls": [google("one")]},
    ),
    "text-and-call-signed": (
        [
            chunk({"content": "Looking."}),
            chunk({"content": "", **google("text")}),
            chunk(call(0, "a", "f", **google("one"))),
        ],
        {**google("text"), "calls": [google("one")]},
    ),
    "thought-in-the-text": (
        [
            chunk({"content": "Hm.", "extra_content": {"google": {"thought": True}}}),
            chunk(call(0, "a", "f", **google("one"))),
        ],
        {"calls": [google("one")]},
    ),
    "details-in-pieces": (
        [
            chunk({"reasoning": "Hm", "reasoning_details": [{"type": "reasoning.text", "text": "Hm", "index": 0}]}),
            chunk({"reasoning": ".", "reasoning_details": [{"type": "reasoning.text", "text": ".", "index": 0}]}),
            chunk(call(0, "a", "f")),
            chunk({"reasoning_details": [{"type": "reasoning.text", "signature": "sig", "index": 0}]}),
            chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "id": "a", "index": 1}]}),
        ],
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "Hm.", "index": 0, "signature": "sig"},
                {"type": "reasoning.encrypted", "data": "x", "id": "a", "index": 1},
            ],
            "calls": [{}],
        },
    ),
    "text-behind-signed-reasoning": (
        [
            chunk({"reasoning": "Hm", "reasoning_details": [{"type": "reasoning.text", "text": "Hm", "index": 0}]}),
            chunk({"reasoning_details": [{"type": "reasoning.text", "signature": "sig", "index": 0}]}),
            chunk({"content": "Looking."}),
            chunk(call(0, "a", "f")),
        ],
        {
            "reasoning_details": [{"type": "reasoning.text", "text": "Hm", "index": 0, "signature": "sig"}],
            "calls": [{}],
        },
    ),
    "litellm": (
        [chunk(call(0, "a", "f", provider_specific_fields={"thought_signature": "one"}))],
        {"calls": [{"provider_specific_fields": {"thought_signature": "one"}}]},
    ),
    "reasoning-that-nobody-signed": (
        [
            chunk({"reasoning": "Hm", "reasoning_details": [{"type": "reasoning.text", "text": "Hm", "index": 0}]}),
            chunk(call(0, "a", "f")),
        ],
        {"calls": [{}]},
    ),
}


@pytest.fixture(scope="module")
def odd() -> Iterator[OddUpstream]:
    with listening({name: streamed(*said, *DONE) for name, (said, _) in ODD.items()}) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(gateway: GatewayServer, simulator: Simulator, odd: OddUpstream) -> GatewayServer:
    models = [model(name, upstream_model=behaviour) for name, behaviour in SIGNED.items()]
    models += [model(name, provider="odd-signs", upstream_model=name) for name in ODD]
    models += [
        model("gemini-3", upstream_model="google/gemini-3-pro+tools+signs:google"),
        model("gemini-2", upstream_model="gemini-2.5-pro+describe"),
        model("elsewhere", provider="other", upstream_model="describe"),
        model("native", upstream_model="describe", modality="responses"),
        model("claude", provider="simanthropic", upstream_model="describe"),
    ]
    providers = [provider("odd-signs", f"http://127.0.0.1:{odd.port}/v1"), provider("other", simulator.url)]
    gateway.offer(providers=providers, models=models)
    return gateway


@signed
@streamed_or_whole
@caps
def test_chats_bring_signatures_back(customer: Customer, slug: str, cap: int, *, streams: bool) -> None:
    client = customer.openai()
    conversation: list[Any] = [BOTH]
    functions = [{"type": "function", "function": {"name": each["name"], "parameters": SCHEMA}} for each in TOOLS]
    asked: Any = {"model": f"sim/test/{slug}", "max_tokens": cap, "tools": functions}
    for _ in range(2):
        if streams:
            with client.chat.completions.stream(messages=conversation, **asked) as events:
                message: Any = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(messages=conversation, **asked).choices[0].message
        conversation.append(_without_parsed(message.to_dict()))
        calls = message.tool_calls or ()
        conversation += [{"role": "tool", "tool_call_id": call.id, "content": "fine"} for call in calls]
    assert conversation[-1]["content"] == "The tool says: fine fine"


@signed
@streamed_or_whole
@caps
@pytest.mark.parametrize("include", [[], ["reasoning.encrypted_content"]], ids=["unasked", "asked"])
def test_responses_bring_signatures_back(
    customer: Customer, slug: str, cap: int, include: list[str], *, streams: bool
) -> None:
    client, texts = customer.openai(), []
    conversation: list[Any] = [BOTH]
    asked: Any = {"model": f"sim/test/{slug}", "max_output_tokens": cap, "tools": FUNCTIONS, "include": include}
    for _ in range(3):
        if streams:
            with client.responses.stream(input=conversation, **asked) as events:
                answer: Any = events.get_final_response()
        else:
            answer = client.responses.create(input=conversation, **asked)
        conversation += [item.to_dict() for item in answer.output]
        calls = [item for item in answer.output if item.type == "function_call"]
        conversation += [{"type": "function_call_output", "call_id": each.call_id, "output": "fine"} for each in calls]
        conversation += [] if calls else [{"role": "user", "content": "go on"}]
        texts.append(answer.output_text)
    assert texts == ["", "The tool says: fine fine", ""]
    reasoning, *calls = conversation[1:4]
    assert [reasoning["type"], *(each["type"] for each in calls)] == ["reasoning", "function_call", "function_call"]
    assert bool(reasoning["content"]) is slug.endswith("thinks")


@signed
@streamed_or_whole
@caps
def test_messages_bring_signatures_back(customer: Customer, slug: str, cap: int, *, streams: bool) -> None:
    client = customer.anthropic()
    conversation: list[Any] = [BOTH]
    asked: Any = {"model": f"sim/test/{slug}", "max_tokens": cap, "tools": TOOLS}
    for _ in range(3):
        if streams:
            with client.messages.stream(messages=conversation, **asked) as events:
                message: Any = events.get_final_message()
        else:
            message = client.messages.create(messages=conversation, **asked)
        conversation.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
        calls = [block for block in message.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": each.id, "content": "fine"} for each in calls]
        conversation.append({"role": "user", "content": results or "go on"})
    first, second = conversation[1]["content"], conversation[3]["content"]
    thought = ["thinking"] if slug.endswith("thinks") else []
    assert [block["type"] for block in first] == [*thought, "tool_use", "tool_use"]
    assert [block["type"] for block in second] == [*thought, "text"]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", block["id"]) for block in first if block["type"] == "tool_use")


@pytest.mark.parametrize("name", ODD)
@streamed_or_whole
@pytest.mark.parametrize("form", ["responses", "messages"])
def test_signed_parts_come_back_in_their_places(
    customer: Customer, odd: OddUpstream, name: str, form: str, *, streams: bool
) -> None:
    asked: Json = {"model": f"odd-signs/test/{name}", "stream": streams}
    if form == "responses":
        asked |= {"input": [BOTH], "max_output_tokens": 500}
        reply = customer.http.post(RESPONSES, json=asked)
        output = ResponseEvents.of(reply).final["output"] if streams else reply.json()["output"]
        calls = [item for item in output if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": each["call_id"], "output": "fine"} for each in calls]
        reply = customer.http.post(RESPONSES, json={**asked, "input": [BOTH, *output, *results]})
    else:
        asked |= {"messages": [BOTH], "max_tokens": 500}
        reply = customer.http.post(MESSAGES, json=asked)
        content = list(blocks_of(MessageEvents.of(reply))) if streams else reply.json()["content"]
        for block in content:
            block.pop("citations", None)
            if isinstance(block.get("input"), str):
                block["input"] = json.loads(block["input"])
        calls = [block for block in content if block["type"] == "tool_use"]
        answered = [{"type": "tool_result", "tool_use_id": each["id"], "content": "fine"} for each in calls]
        turns = [{"role": "assistant", "content": content}, {"role": "user", "content": answered}]
        if name != "signature-behind-arguments":  # Claude Code drops signed thinking of models with other names
            content[:] = [block for block in content if block["type"] != "thinking"]
        reply = customer.http.post(MESSAGES, json={**asked, "messages": [BOTH, *turns]})
    assert reply.status_code == 200, reply.text
    assert "X-Gateway-Adjusted-Params" not in reply.headers
    (_, turn, *_) = odd.bodies[name]["messages"]
    own = ("id", "type", "function")
    sent = {"calls": [{name: value for name, value in each.items() if name not in own} for each in turn["tool_calls"]]}
    sent |= {name: turn[name] for name in ("reasoning_details", "extra_content") if name in turn}
    assert sent == ODD[name][1]
    assert [each["id"] for each in turn["tool_calls"]] == ["a", "b"][: len(turn["tool_calls"])]


def turn_of_messages(customer: Customer) -> list[Json]:
    """Returns a turn in which Gemini called two tools."""
    asked = {"model": "sim/test/google", "messages": [BOTH], "max_tokens": 64, "tools": TOOLS}
    content = customer.http.post(MESSAGES, json=asked).json()["content"]
    calls = [block["id"] for block in content if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": each, "content": "fine"} for each in calls]
    return [BOTH, {"role": "assistant", "content": content}, {"role": "user", "content": results}]


def turn_of_responses(customer: Customer) -> list[Json]:
    asked = {"model": "sim/test/google", "input": [BOTH], "tools": FUNCTIONS}
    output = customer.http.post(RESPONSES, json=asked).json()["output"]
    calls = [item["call_id"] for item in output if item["type"] == "function_call"]
    return [BOTH, *output, *({"type": "function_call_output", "call_id": each, "output": "fine"} for each in calls)]


def test_another_provider_does_not_get_what_was_signed(customer: Customer) -> None:
    asked: Json = {"model": "other/test/elsewhere", "messages": turn_of_messages(customer), "max_tokens": 64}
    reply = customer.http.post(MESSAGES, json=asked)
    received = json.loads(reply.json()["content"][0]["text"])["body"]
    assert [set(each) for each in received["messages"][1]["tool_calls"]] == [{"id", "type", "function"}] * 2
    assert reply.headers["X-Gateway-Adjusted-Params"] == "signature"
    asked = {"model": "other/test/elsewhere", "input": turn_of_responses(customer)}
    reply = customer.http.post(RESPONSES, json=asked)
    received = json.loads(reply.json()["output"][0]["content"][0]["text"])["body"]
    assert [set(each) for each in received["messages"][1]["tool_calls"]] == [{"id", "type", "function"}] * 2
    assert reply.headers["X-Gateway-Adjusted-Params"] == "encrypted_content"


def test_a_provider_of_the_clients_own_api_does_not_get_our_envelope(customer: Customer) -> None:
    asked: Json = {"model": "simanthropic/test/claude", "messages": turn_of_messages(customer), "max_tokens": 64}
    received = json.loads(customer.http.post(MESSAGES, json=asked).json()["content"][0]["text"])["body"]
    (_, turn, answered) = received["messages"]
    assert [block["type"] for block in turn["content"]] == ["tool_use", "tool_use"]
    ids = [block["id"] for block in turn["content"]]
    assert ids == [block["tool_use_id"] for block in answered["content"]]
    assert [re.fullmatch(r"call_sim_[0-9a-f]{16}", each) is not None for each in ids] == [True, True]
    asked = {"model": "sim/test/native", "input": turn_of_responses(customer)}
    reply = customer.http.post(RESPONSES, json=asked)
    received = json.loads(reply.json()["output"][0]["content"][0]["text"])["body"]
    assert [item.get("type") for item in received["input"][1:3]] == ["function_call", "function_call"]
    assert reply.headers["X-Gateway-Adjusted-Params"] == "encrypted_content"


def test_gemini_takes_calls_that_are_not_signed(customer: Customer) -> None:
    """Either the client did not send the signature back, or another model made the calls."""
    written = re.sub("_gw1_[A-Za-z0-9_-]+", "", json.dumps(turn_of_messages(customer)))
    asked: Json = {"model": "sim/test/gemini-3", "messages": json.loads(written), "max_tokens": 64}
    reply = customer.http.post(MESSAGES, json=asked)
    assert [block["text"] for block in reply.json()["content"]] == ["The tool says: fine fine"]
    assert reply.headers["X-Gateway-Adjusted-Params"] == "thought_signature"
    items = [item for item in turn_of_responses(customer) if item.get("type") != "reasoning"]
    reply = customer.http.post(RESPONSES, json={"model": "sim/test/gemini-3", "input": items})
    assert reply.json()["output"][0]["content"][0]["text"] == "The tool says: fine fine"
    assert reply.headers["X-Gateway-Adjusted-Params"] == "thought_signature"
    # A model that does not require signatures gets only its own.
    reply = customer.http.post(MESSAGES, json={**asked, "model": "sim/test/gemini-2"})
    received = json.loads(reply.json()["content"][0]["text"])["body"]
    assert [set(each) for each in received["messages"][1]["tool_calls"]] == [{"id", "type", "function"}] * 2


@pytest.mark.parametrize(
    "content",
    [
        1,
        {},
        {"provider": 1},
        {"provider": "other", "calls": {"a": {"function": {"name": "other"}}}},
        {"provider": "other", "reasoning_details": [{"type": [], "index": 0}]},
        {"provider": "other", "reasoning_details": "x"},
        {"provider": "other", "extra_content": 1},
        {"provider": "other", "calls": []},
        {"provider": "other", "extra_content": {"deep": json.loads("[" * 300 + "]" * 300)}},
    ],
    ids=lambda content: str(content)[:40],
)
def test_an_envelope_that_is_not_as_ours_are_is_left_out(customer: Customer, content: Any) -> None:
    text = "gw1." + base64.b64encode(json.dumps(content).encode()).decode()
    call = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"}
    asked = {"model": "other/test/elsewhere", "input": [{"type": "reasoning", "encrypted_content": text}, call]}
    reply = customer.http.post(RESPONSES, json=asked)
    (turn,) = json.loads(reply.json()["output"][0]["content"][0]["text"])["body"]["messages"]
    assert turn == {"role": "assistant", "content": None, "tool_calls": [CALL]}
    assert reply.headers["X-Gateway-Adjusted-Params"] == "encrypted_content"


def _without_parsed(message: Json) -> Json:
    """Returns a message as the client has it, without what its stream helper adds."""
    for each in message.get("tool_calls") or ():
        each.pop("index", None)
        each["function"].pop("parsed_arguments", None)
    return {name: value for name, value in message.items() if name != "parsed" and value is not None}
