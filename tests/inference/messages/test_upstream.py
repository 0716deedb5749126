"""A message request reaches an upstream unchanged if the upstream speaks Messages, and otherwise as a chat."""

import json
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from inference.call import Call, Shape
from inference.estimator import most_prompt_tokens
from inference.wire_forms.messages.requests import chat_of
from tests import bills
from tests.inference.messages.events import HELLO, PATH, WEATHER, ask, stream
from tests.patience import eventually
from tests.servers.customer import Customer

Json = dict[str, Any]

CACHED: Json = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
SIGNED: Json = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
SEARCH: Json = {"type": "search_result", "source": "https://x.example", "title": "X"}
INLINE: Json = {"type": "document", "source": {"type": "content", "content": "x"}}
PICTURE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
CONVERSATION: list[Json] = [
    {"role": "user", "content": [{"type": "text", "text": "hello there", **CACHED}, PICTURE]},
    {"role": "assistant", "content": [
        SIGNED, {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"at": "Paris"}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "sunny"}, PICTURE]},
        {"type": "text", "text": "And now?"},
    ]},
]  # fmt: skip


def received(customer: Customer, model: str, headers: dict[str, str] | None = None, **fields: Any) -> Json:
    """Returns the request that reached the upstream, which `describe` answers with."""
    reply = ask(customer, model, headers, **fields)
    assert reply.status_code == 200, reply.text
    described: Json = json.loads(reply.json()["content"][0]["text"])
    return described


def test_what_anthropic_upstreams_get_is_what_came(account: Customer) -> None:
    fields: Json = {
        "messages": CONVERSATION,
        "system": [{"type": "text", "text": "Be brief.", **CACHED}],
        "tools": [{**WEATHER, **CACHED, "defer_loading": True}, {"type": "bash_20250124", "name": "bash"}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
        "metadata": {"user_id": "u"},
        "field_of_tomorrow": {"a": [None, 1]},
    }
    betas = ["interleaved-thinking-2025-05-14", "context-1m-2025-08-07", "claude-code-20250219"]
    headers = {"anthropic-beta": ", ".join(betas), "anthropic-version": "2023-06-01", "x-secret": "mine"}
    got = received(account, "simanthropic/claude/describe", headers, **fields)
    assert got["body"] == {"model": "describe", "max_tokens": 64, **fields}
    assert got["headers"]["anthropic-beta"] == "interleaved-thinking-2025-05-14,claude-code-20250219"
    assert got["headers"]["anthropic-version"] == "2023-06-01"
    assert account.key not in json.dumps(got)
    assert "x-secret" not in got["headers"]
    reply = ask(account, "simanthropic/claude/describe", headers)
    assert reply.headers["X-Gateway-Adjusted-Params"] == "anthropic-beta:context-1m-2025-08-07"


def test_unknown_fields_of_an_answer_pass_too(account: Customer) -> None:
    answer = ask(account, "simanthropic/claude/reasoning-extra").json()
    assert answer["sim_answer"] == {"kept": True}
    assert answer["content"][0]["sim_block"] == "kept"
    events = stream(account, "simanthropic/claude/reasoning-extra")
    assert events.named("content_block_start")[0]["content_block"]["sim_block"] == "kept"
    assert events.named("content_block_delta")[0]["delta"]["sim_delta"] is True
    whole = ask(account, "simanthropic/claude/reasoning-extra", max_tokens=1000).json()  # put together from a stream
    assert whole["content"] == [{**block, "sim_delta": True} for block in answer["content"]]
    assert whole["sim_answer"] == answer["sim_answer"]


def test_caching_is_billed_apart_on_both_ways(account: Customer) -> None:
    whole, streamed = (
        ask(account, "simanthropic/claude/cache-everything").json()["usage"],
        stream(account, "simanthropic/claude/cache-everything").last["usage"],
    )
    for usage in (whole, streamed):
        assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]) == (
            2, 20, 10
        )  # fmt: skip
        assert usage["cache_creation"] == {"ephemeral_5m_input_tokens": 7, "ephemeral_1h_input_tokens": 3}
    first, second = bills.records(account)
    assert (first.prompt_tokens, first.cost) == (second.prompt_tokens, second.cost) == (32, first.cost)


def test_a_chat_is_made_of_a_conversation() -> None:
    asked: Json = {
        "messages": CONVERSATION,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2"},
            {"type": "text", "text": "Be brief.", **CACHED},
            {"type": "text", "text": "Be kind."},
        ],
        "tools": [{**WEATHER, **CACHED, "strict": True}],
        "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        "stop_sequences": ["zebra"],
        "thinking": {"type": "enabled", "budget_tokens": 5000},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        "metadata": {"user_id": "u"},
        "temperature": 0.5,
        "top_k": 4,
    }
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    attachment = {"type": "text", "text": "Attachment 1:"}
    function = {"name": "weather", "arguments": '{"at":"Paris"}'}
    chat, undelivered = chat_of(asked)
    assert list(undelivered) == ["metadata", "cache_control", "signature", "tool_result"]
    assert chat == {
        "messages": [
            {"role": "system", "content": "Be brief.\n\nBe kind."},
            {"role": "user", "content": [{"type": "text", "text": "hello there"}, url]},
            {
                "role": "assistant",
                "content": "Let me see.",
                "reasoning_content": "Hm.",
                "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}],
            },
            {
                "role": "tool",
                "tool_call_id": "toolu_1",
                "content": "sunny\n[Attachment 1 is in the next message]",
            },
            {"role": "user", "content": [attachment, url, {"type": "text", "text": "And now?"}]},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "Of a place.",
                    "strict": True,
                    "parameters": WEATHER["input_schema"],
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "stop": ["zebra"],
        "reasoning_effort": "medium",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
        },
        "temperature": 0.5,
        "top_k": 4,
    }


def test_an_assistant_that_said_an_empty_text_is_left_out() -> None:
    """Without words and calls it would be a message that chats refuse."""
    user = {"role": "user", "content": "hi"}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    for content in ([{"type": "text", "text": ""}], [thought, {"type": "text", "text": ""}], []):
        chat, _ = chat_of({"messages": [user, {"role": "assistant", "content": content}, user]})
        assert chat["messages"] == [user, user]


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({}, None),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, None),
        ({"thinking": {"type": "disabled"}}, None),
        ({"output_config": {"effort": "low"}}, "low"),
        ({"output_config": {"effort": "max"}}, "xhigh"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31999}}, "high"),
    ],
)
def test_how_hard_to_think(fields: Json, effort: str | None) -> None:
    assert chat_of({"messages": HELLO, **fields})[0].get("reasoning_effort") == effort


@pytest.mark.parametrize(
    ("block", "path"),
    [
        ({"type": "server_tool_use", "id": "x"}, "messages[0].content[0].type"),
        ({"type": "document", "source": {"type": "url", "url": "https://x"}}, "messages[0].content[0].source"),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "messages[0].content[0].source"),
        ({"type": "text"}, "messages[0].content[0].text"),
        ({"type": "tool_result", "content": "x"}, "messages[0].content[0].tool_use_id"),
        ({"type": "tool_result", "tool_use_id": "x", "content": 5}, "messages[0].content[0].content"),
        (
            {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "tool_reference"}]},
            "messages[0].content[0].content[0].tool_name",
        ),
        ({"type": "tool_reference", "tool_name": "x"}, "messages[0].content[0].type"),
        ({**SEARCH, "content": [SEARCH]}, "messages[0].content[0].content[0].type"),
        (
            {**INLINE, "source": {"type": "content", "content": [INLINE]}},
            "messages[0].content[0].source.content[0].type",
        ),
    ],
)
def test_what_a_chat_has_no_form_for_is_refused(block: Json, path: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat_of({"messages": [{"role": "user", "content": [block]}]})
    assert refused.value.param == path


@pytest.mark.parametrize("model", ["sim/test/describe", "simanthropic/claude/describe"])
def test_tools_that_a_result_loads_are_named_for_a_provider_without_references(account: Customer, model: str) -> None:
    references = [{"type": "tool_reference", "tool_name": name} for name in ("weather", "clock")]
    call = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": references}
    turns = [*HELLO, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    reply = ask(account, model, messages=turns)
    sent = json.loads(reply.json()["content"][0]["text"])["body"]["messages"][-1]
    if model.startswith("simanthropic"):
        assert sent == turns[-1]
        assert "X-Gateway-Adjusted-Params" not in reply.headers
    else:
        assert sent == {"role": "tool", "tool_call_id": "toolu_1", "content": "Loaded tools: weather, clock"}
        assert reply.headers["X-Gateway-Adjusted-Params"] == "tool_reference"


def test_a_result_that_loads_tools_may_say_more() -> None:
    said = [{"type": "text", "text": "Two."}, {"type": "tool_reference", "tool_name": "clock", **CACHED}]
    result = {"type": "tool_result", "tool_use_id": "x", "content": said}
    chat, undelivered = chat_of({"messages": [{"role": "user", "content": [result]}]})
    assert chat["messages"][0]["content"] == "Two.\nLoaded tools: clock"
    assert list(undelivered) == ["tool_reference", "cache_control"]


@pytest.mark.parametrize("thinking", [5, True, ["hm"], {"a": 1}])
def test_thinking_that_is_no_text_is_refused(account: Customer, thinking: object) -> None:
    turns = [*HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": thinking}]}]
    reply = account.http.post(PATH, json={"model": "sim/test/echo", "max_tokens": 64, "messages": turns})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages[1].content[0].thinking")
    said: Json = {"type": "text", "text": "Hm."}
    nothing = [*HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": None}, said]}]
    assert chat_of({"messages": nothing})[0]["messages"][1] == {"role": "assistant", "content": "Hm."}


def test_blocks_in_blocks_without_an_end_are_refused(account: Customer) -> None:
    block: Json = {"type": "text", "text": "x"}
    for _ in range(400):
        block = {**SEARCH, "content": [block]}
    body = {"model": "sim/test/echo", "max_tokens": 64, "messages": [{"role": "user", "content": [block]}]}
    reply = account.http.post(PATH, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages[0].content[0].content[0].type")


TOOLS: Json = {"tools": [WEATHER]}
IN_SCHEMA: Json = {"type": "json_schema", "schema": {}}


@pytest.mark.parametrize(
    ("fields", "disclosed"),
    [
        # These fields of a message are neither its role nor its content.
        ({"messages": [*HELLO, {"role": "system", "content": [], "output_config": {"a": 1}}]}, "output_config"),
        ({"messages": [{**HELLO[0], **CACHED}]}, "cache_control"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "x", "stop_reason": None}]}, None),
        # These concern thinking and effort.
        ({"thinking": {"type": "enabled"}}, "thinking"),
        ({"thinking": {"type": "deep"}}, "thinking"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, None),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2000}, "output_config": {"effort": "low"}},
            "thinking.budget_tokens",
        ),
        ({"output_config": {"effort": "max"}}, "output_config.effort"),
        ({"output_config": {"effort": "low"}}, None),
        ({"output_config": {"effort": "high"}}, None),
        # These concern the form of the answer.
        ({"output_config": {"format": {**IN_SCHEMA, "name": "x"}}}, "output_config.format.name"),
        (
            {
                "output_config": {"format": IN_SCHEMA},
                "output_format": {"type": "json_schema", "schema": {"type": "object"}},
            },
            "output_format",
        ),
        # Tools.
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "auto"}}, None),
        ({**TOOLS, "tool_choice": {"type": "any", "strict": True}}, "tool_choice.strict"),
        ({**TOOLS, "tool_choice": {"type": "any", "disable_parallel_tool_use": False}}, None),
        # Members of blocks.
        ({"messages": [{"role": "user", "content": [{**PICTURE, "source": {**PICTURE["source"], "fps": 2}}]}]}, "fps"),
        ({"messages": [{"role": "user", "content": [{**INLINE, "title": 5}]}]}, "title"),
        (
            {"messages": [{"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "weather", "input": {}, "caller": {"type": "code", "id": "b"}}
            ]}]},
            "caller",
        ),
        (
            {"messages": [{"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "weather", "input": {}, "caller": {"type": "direct"}}
            ]}]},
            None,
        ),
    ],
)  # fmt: skip
def test_fields_that_a_chat_gets_differently_or_not_at_all_are_disclosed(fields: Json, disclosed: str | None) -> None:
    _, undelivered = chat_of({"messages": HELLO, **fields})
    assert list(undelivered) == ([disclosed] if disclosed else [])


def test_a_chat_loses_hints_and_says_so(account: Customer) -> None:
    fields = {"metadata": {"user_id": "u"}, "context_management": {"edits": []}, **CACHED}
    reply = ask(account, "sim/test/describe", **fields)
    body = json.loads(reply.json()["content"][0]["text"])["body"]
    assert body == {"model": "describe", "max_tokens": 64, "messages": HELLO}
    assert set(reply.headers["X-Gateway-Adjusted-Params"].split(", ")) == {*fields}


def test_a_completion_model_takes_messages_too(account: Customer) -> None:
    assert ask(account, "sim/text/echo").json()["content"][0]["text"].endswith("Assistant:")
    assert stream(account, "sim/text/echo").last["delta"]["stop_reason"] == "end_turn"


def test_a_client_that_leaves_in_the_middle_pays_for_what_it_got(account: Customer) -> None:
    for model in ("sim/test/stall", "simanthropic/claude/stall"):
        with account.anthropic().messages.stream(model=model, max_tokens=64, messages=HELLO) as events:  # type: ignore[arg-type]
            next(iter(events.text_stream))
    assert eventually(lambda: [record.ending for record in bills.records(account)] == ["client_left"] * 2)


@pytest.mark.parametrize(
    ("text", "tokens"),  # the larger count of tiktoken's cl100k_base and o200k_base
    [
        ("Why is the sky blue, and why are sunsets red?", 13),
        ("a b c d", 4),
        ("漢字かな交じり文", 9),
        ("3.14159", 4),
        ("Donaudampfschifffahrtsgesellschaftskapitän", 17),
        ("kQJ7x0v9ZpLm2RtY8wBc4Nd6Hf1Gs3Ke5Ua", 32),
        ("acetylsalicylic pembrolizumab xylometazoline", 16),
        ("W Szczebrzeszynie chrząszcz brzmi w trzcinie", 20),
        ("qzxjkv wbtrpl hgnxqz", 12),
        ("👩‍👩‍👧‍👦🏳️‍🌈🧑🏽‍💻", 37),
        ("השער חייב להבטיח", 16),
        ("ծრანიშ խորհრდ", 0),
    ],
)
def test_an_estimate_does_not_fall_short(text: str, tokens: int) -> None:
    assert estimate(text) - estimate("") >= tokens


def estimate(text: str) -> int:
    return most_prompt_tokens(Call(Shape.MESSAGES, "m", {"messages": [{"role": "user", "content": text}]}))
