"""Tests the simulated provider as OpenAI: through the official SDK, and as bytes if the SDK would hide them."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI
from openai.types.chat import (
    ChatCompletionFunctionToolParam,
    ChatCompletionStreamOptionsParam,
    ChatCompletionUserMessageParam,
)

from simulator.behaviour import Behaviour, parse
from tests.simulator.process import CHECKOUT, Provider, chat_body, frames, running, texts

ONE_TWO: ChatCompletionUserMessageParam = {"role": "user", "content": "one two"}
TOOL: ChatCompletionFunctionToolParam = {"type": "function", "function": {"name": "weather", "parameters": {}}}
CLOCK: ChatCompletionFunctionToolParam = {"type": "function", "function": {"name": "clock", "parameters": {}}}


@pytest.fixture(scope="module")
def client(provider: Provider) -> Iterator[OpenAI]:
    with OpenAI(base_url=provider.url, api_key="any", max_retries=0) as sdk:
        yield sdk


def test_words_of_a_model_name_combine() -> None:
    assert parse("cached:10+chunks:5:0.01") == Behaviour(cached=10, chunk_count=5, chunk_interval=0.01)


@pytest.mark.parametrize("name", ["echo", "llama-3.3-70b", "llama:70b+instruct", ""])
def test_an_ordinary_name_is_answered_like_echo(name: str) -> None:
    assert parse(name) == Behaviour()


@pytest.mark.parametrize("name", ["stall", "stall:x", "chunks:1:-1", "status:42", "tools:1", "bad-usage:odd"])
def test_a_known_word_with_arguments_it_does_not_take_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(name)


def test_a_misspelt_argument_is_answered_with_400(provider: Provider) -> None:
    assert provider.chat("stall:x")["error"]["param"] == "model"


def test_echo_answers_with_the_last_user_message(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "hello  wörld "}])
    assert answer.choices[0].message.content == "hello  wörld "
    assert answer.choices[0].finish_reason == "stop"


def test_tokens_are_the_words_of_all_messages(provider: Provider) -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]
    usage = provider.chat("echo", messages=messages)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 1, 4)


def test_the_same_request_is_answered_with_the_same_id(provider: Provider) -> None:
    assert provider.chat("echo")["id"] == provider.chat("echo")["id"]


def test_a_stream_is_a_role_a_chunk_per_word_a_finish_and_done(provider: Provider) -> None:
    text = provider.chat_stream("echo", "one two").read().decode()
    choices = [chunk["choices"][0] for chunk in frames(text)]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "one"},
        {"content": " two"},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    assert text.endswith("data: [DONE]\n\n")


def test_a_stream_reports_usage_only_when_asked(client: OpenAI) -> None:
    ask: ChatCompletionStreamOptionsParam = {"include_usage": True}
    plain = list(client.chat.completions.create(model="echo", messages=[ONE_TWO], stream=True))
    asked = list(client.chat.completions.create(model="echo", messages=[ONE_TWO], stream=True, stream_options=ask))
    assert all(chunk.usage is None for chunk in plain)
    assert [chunk.usage and chunk.usage.total_tokens for chunk in asked][-2:] == [None, 4]
    assert asked[-1].choices == []


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_ends_at_the_callers_limit(provider: Provider, name: str) -> None:
    choice = provider.chat("echo", "one two three", **{name: 2})["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one two", "length")


def test_an_answer_ends_before_a_stop_sequence(provider: Provider) -> None:
    choice = provider.chat("echo", "one two three", stop=["three", " two"])["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one", "stop")


def test_several_choices_take_turns(provider: Provider) -> None:
    chunks = frames(provider.chat_stream("echo", "a b", n=2).read().decode())
    assert [chunk["choices"][0]["index"] for chunk in chunks] == [0, 1, 0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("n", [129, 2**63, 2**64 - 1])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_more_choices_than_anybody_sells_are_refused(provider: Provider, path: str, n: int) -> None:
    with provider.open(path, {**chat_body("echo", "hi"), "prompt": "hi", "n": n}) as response:
        error = json.loads(response.read())["error"]
    assert (response.status, error["param"], error["code"]) == (400, "n", "integer_above_max_value")


def test_chunks_sends_the_given_number_of_words(provider: Provider) -> None:
    chunks = frames(provider.chat_stream("chunks:5:0.001", "a b").read().decode())
    assert texts(chunks) == ["a", " b", " a", " b", " a"]


def test_a_tool_loop_ends_with_the_tools_result(client: OpenAI) -> None:
    asked: list[Any] = [{"role": "user", "content": "rain?"}]
    with client.chat.completions.stream(model="tools", messages=asked, tools=[TOOL]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    call = message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"query": "rain?"})
    asked += [message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    final = client.chat.completions.create(model="tools", messages=asked)
    assert final.choices[0].message.content == "The tool says: sunny"


@pytest.mark.parametrize(("parallel", "names"), [(None, ["weather", "clock"]), (False, ["weather"])])
def test_both_makes_two_tool_calls_unless_forbidden(
    provider: Provider, parallel: bool | None, names: list[str]
) -> None:
    answer = provider.chat("tools", "both please", tools=[TOOL, CLOCK], parallel_tool_calls=parallel)
    calls = answer["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == names
    assert len({call["id"] for call in calls}) == len(names)


@pytest.mark.parametrize(
    ("choice", "name"), [({"type": "function", "function": {"name": "clock"}}, "clock"), ("auto", "weather")]
)
def test_the_tool_that_the_caller_insists_on_is_called(provider: Provider, choice: object, name: str) -> None:
    answer = provider.chat("tools", tools=[TOOL, CLOCK], tool_choice=choice)
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == name


def test_a_tool_without_arguments_may_come_with_an_empty_string(provider: Provider) -> None:
    message = provider.chat("tools+empty-arguments")["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "lookup", "arguments": ""}


def test_reasoning_comes_first_and_counts(provider: Provider) -> None:
    answer = provider.chat("reasoning:reasoning", "hi")
    assert answer["choices"][0]["message"]["reasoning"] == "First I read the question."
    assert answer["usage"]["completion_tokens"] == 6
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5


def test_a_refusal_is_no_content(provider: Provider) -> None:
    message = provider.chat("refusal")["choices"][0]["message"]
    assert message["content"] is None
    assert message["refusal"]


def test_extras_are_added_at_every_level(provider: Provider) -> None:
    first = frames(provider.chat_stream("extra-fields+logprobs+finish:odd", "hi").read().decode())[1]
    assert first["sim_answer"]
    assert first["choices"][0]["sim_choice"]
    assert first["choices"][0]["delta"]["sim_delta"]
    assert first["choices"][0]["logprobs"]["content"][0]["token"] == "hi"


def test_a_text_completion_echoes_each_prompt(client: OpenAI) -> None:
    answer = client.completions.create(model="echo", prompt=["one two", "three"], n=2)
    assert [choice.text for choice in answer.choices] == ["one two", "one two", "three", "three"]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]


def test_a_text_completion_streams_words(client: OpenAI) -> None:
    chunks = list(client.completions.create(model="echo", prompt="one two", stream=True))
    assert [chunk.choices[0].text for chunk in chunks] == ["one", " two", ""]
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_embeddings_are_the_same_in_both_formats(client: OpenAI) -> None:
    packed = client.embeddings.create(model="echo", input=["a", "b"], dimensions=4)  # the SDK requests base64
    floats = client.embeddings.create(model="echo", input=["a", "b"], dimensions=4, encoding_format="float")
    assert [each.embedding for each in packed.data] == [each.embedding for each in floats.data]
    assert sum(value**2 for value in floats.data[0].embedding) == pytest.approx(1, abs=1e-5)
    assert floats.data[0].embedding != floats.data[1].embedding


def test_token_ids_count_one_each(provider: Provider) -> None:
    answer = provider.post("/v1/embeddings", {"model": "echo", "input": [[1, 2, 3], [4]]})
    assert len(answer["data"]) == 2
    assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


def test_embeddings_can_ignore_the_format(provider: Provider) -> None:
    body = {"model": "ignores-format", "input": "a", "encoding_format": "base64"}
    assert isinstance(provider.post("/v1/embeddings", body)["data"][0]["embedding"], list)


def test_describe_shows_what_arrived(provider: Provider) -> None:
    body = chat_body("describe", "hi", max_tokens=1, seed=7)
    shown = json.loads(provider.post("/v1/chat/completions", body)["choices"][0]["message"]["content"])
    assert shown["body"] == body
    assert shown["path"] == "/v1/chat/completions"
    assert shown["headers"]["content-type"] == "application/json"
    embedded = {"model": "describe", "input": "hi"}
    assert provider.post("/v1/embeddings", embedded)["received"]["body"] == embedded


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/chat/completions", "/at/paris/v1/chat/completions"])
def test_an_endpoint_is_found_under_several_bases(provider: Provider, path: str) -> None:
    assert provider.post(path, chat_body("echo", "hi"))["choices"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/v1/v1/chat/completions", 404), ("GET", "/v1/models", 404), ("GET", "/v1/chat/completions", 405)],
)
def test_other_paths_and_methods_are_refused(provider: Provider, method: str, path: str, status: int) -> None:
    with provider.open(path, {}, method) as response:
        assert response.status == status
        assert json.loads(response.read())["error"]["message"]


def test_one_dialect_alone_can_be_spoken() -> None:
    with running("--dialect", "anthropic") as restricted:
        assert restricted.chat("echo", "hi")["error"]["type"] == "invalid_request_error"
        assert restricted.messages("echo", "hi")["type"] == "message"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_with_a_stream_open(number: signal.Signals) -> None:
    with running() as stopped, stopped.chat_stream("stall:1"):
        stopped.process.send_signal(number)
        assert stopped.process.wait(20) == 0


def test_a_taken_port_is_one_line_on_stderr() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "simulator", "--port", str(taken.getsockname()[1])]
        ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("signs", ["google", "openrouter"])
def test_a_signature_is_demanded_back_in_its_place(provider: Provider, signs: str) -> None:
    model, user = f"tools+signs:{signs}", {"role": "user", "content": "both now"}
    message = provider.chat(model, tools=[TOOL, CLOCK], messages=[user])["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": each["id"], "content": "fine"} for each in message["tool_calls"]]
    second = provider.chat(model, tools=[TOOL, CLOCK], messages=[user, message, *results])
    assert second["choices"][0]["message"]["content"] == "The tool says: fine fine"
    first, other = message["tool_calls"]
    own = ("id", "type", "function")
    bare = {"role": "assistant", "tool_calls": [{name: each[name] for name in own} for each in (first, other)]}
    moved = {**message, "tool_calls": [other, first]}
    for wrong in (bare, moved):
        refused = provider.chat(model, tools=[TOOL, CLOCK], messages=[user, wrong, *results])
        assert refused["error"]["param"] == "messages"
