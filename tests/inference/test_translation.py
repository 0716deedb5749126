"""A request in one API is translated to its upstream's API, and the answer lists everything that was lost."""

import json
from base64 import b64encode
from typing import Any

import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from tests import bills
from tests.envelope import message, refusal
from tests.servers.customer import Customer

Json = dict[str, Any]

HELLO: list[Json] = [{"role": "user", "content": "hello there"}]
PDF = "data:application/pdf;base64,JVBERi0xLjQ="
TEXT = "data:text/markdown;base64," + b64encode("# Grüße".encode()).decode()
PNG: Json = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
PNG_URL = "data:image/png;base64,iVBORw0KGgo="
CACHED: Json = {"cache_control": {"type": "ephemeral"}}
CALLS: list[Json] = [
    {"type": "tool_use", "id": "a", "name": "look", "input": {}},
    {"type": "tool_use", "id": "b", "name": "look", "input": {}},
]
CHATS, CLAUDES = TypeAdapter(list[ChatCompletionMessageParam]), TypeAdapter(list[MessageParam])
PATHS = {"chat/completions": "messages", "responses": "input", "messages": "messages"}


def _require_schema(messages: list[Json], schema: TypeAdapter[Any]) -> None:
    """Validates messages with the types of the API's official client; parts of a content are validated when read."""
    json.dumps(schema.validate_python(messages), default=list)


class Received:
    """Holds the request that reached an upstream (`describe` answers with it) and the losses that the answer lists."""

    def __init__(self, customer: Customer, path: str, model: str, **fields: Any) -> None:
        cap = {} if path == "responses" else {"max_tokens": 64}
        reply = customer.http.post(f"/v1/{path}", json={"model": model, **cap, **fields})
        assert reply.status_code == 200, reply.text
        said = reply.json()
        if path == "messages":
            text = said["content"][0]["text"]
        elif path == "responses":
            text = said["output"][0]["content"][0]["text"]
        else:
            text = said["choices"][0]["message"]["content"]
        self.body: Json = json.loads(text)["body"]
        self.messages: list[Json] = self.body["messages"]
        _require_schema(self.messages, CLAUDES if "claude" in model else CHATS)
        self.disclosed = set(filter(None, reply.headers.get("X-Gateway-Adjusted-Params", "").split(", ")))


def messages_over_openai(
    customer: Customer, *blocks: Json, model: str = "sim/test/describe", **fields: Any
) -> Received:
    conversation = [
        *HELLO,
        {"role": "assistant", "content": CALLS},
        {"role": "user", "content": [*blocks]},
    ]
    return Received(customer, "messages", model, messages=conversation, **fields)


def result(of: str, content: Any, **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": of, "content": content, **fields}


def text(words: str, **fields: Any) -> Json:
    return {"type": "text", "text": words, **fields}


# --- Messages over a provider of OpenAI's dialect


def test_a_failed_tool_is_reported_as_failed(account: Customer) -> None:
    got = messages_over_openai(
        account, result("a", "exit 1", is_error=True), result("b", "Error: no such file", is_error=True)
    )
    assert [each["content"] for each in got.messages[2:]] == ["Error: exit 1", "Error: no such file"]
    assert got.disclosed == {"is_error"}
    assert messages_over_openai(account, result("a", "ok", is_error=False), result("b", "")).disclosed == set()
    nothing = messages_over_openai(
        account, result("a", None, is_error=True), result("b", [{"type": "image", "source": PNG}])
    )
    assert nothing.messages[2]["content"] == "Error:"


def test_pictures_of_results_follow_under_a_number_that_stands_in_their_place(account: Customer) -> None:
    picture: Json = {"type": "image", "source": PNG}
    got = messages_over_openai(
        account, result("a", [text("left"), picture]), result("b", [picture, text("right")]), text("Which?")
    )
    image = {"type": "image_url", "image_url": {"url": PNG_URL}}
    assert got.messages[2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "left\n[Attachment 1 is in the next message]"},
        {"role": "tool", "tool_call_id": "b", "content": "[Attachment 2 is in the next message]\nright"},
        {"role": "user", "content": [text("Attachment 1:"), image, text("Attachment 2:"), image, text("Which?")]},
    ]
    assert got.disclosed == {"tool_result"}


def test_documents_and_search_results_are_text(account: Customer) -> None:
    plain: Json = {"type": "text", "media_type": "text/plain", "data": "Sales rose."}
    parts: Json = {"type": "content", "content": [text("Page one."), {"type": "image", "source": PNG}]}
    search: Json = {"type": "search_result", "source": "https://x.example", "title": "X", "content": [text("Found.")]}
    cited: Json = {"citations": {"enabled": True}}
    got = messages_over_openai(
        account,
        result("a", [search]),
        result("b", "ok"),
        {"type": "document", "source": plain, "title": "Report", "context": "Of 2025.", **cited, **CACHED},
        {"type": "document", "source": parts, "citations": {"enabled": False}},
        {"type": "document", "source": {"type": "content", "content": "A string."}},
        {"type": "document", "source": {**PNG, "media_type": "application/pdf"}, "title": "a.pdf", "context": "Old."},
        {**search, **cited},
    )
    assert got.messages[2]["content"] == "Title: X\nSource: https://x.example\nFound."
    assert got.messages[4]["content"] == [
        text("Title: Report\nContext: Of 2025."),
        text("Sales rose."),
        text("Page one."),
        {"type": "image_url", "image_url": {"url": PNG_URL}},
        text("A string."),
        text("Context: Old."),
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,iVBORw0KGgo="}},
        text("Title: X\nSource: https://x.example"),
        text("Found."),
    ]
    assert got.disclosed == {"citations", "cache_control"}


def test_fields_of_a_message_that_a_chat_does_not_get_are_disclosed(account: Customer) -> None:
    tool: Json = {"name": "look", "input_schema": {"type": "object"}, "defer_loading": True, **CACHED}
    turn = [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "redacted_thinking", "data": "x"},
        text("Yes.", citations=[{"type": "char_location", "cited_text": "Y"}]),
        {**CALLS[0], "caller": {"type": "direct"}},
    ]
    got = Received(
        account,
        "messages",
        "sim/test/describe",
        messages=[*HELLO, {"role": "assistant", "content": turn}, {"role": "user", "content": [result("a", "ok")]}],
        system=[text("Be brief.", **CACHED)],
        tools=[tool],
        output_config={"effort": "low", "task_budget": {"total": 9}},
    )
    assert got.disclosed == {
        *("cache_control", "defer_loading", "signature", "redacted_thinking", "citations", "task_budget")
    }  # fmt: skip
    assert "task_budget" not in json.dumps(got.body)


def test_names_of_the_clients_own_do_not_break_a_header(account: Customer) -> None:
    odd: Json = {"x\r\nSet-Cookie: a": 1, "ü": 1, "a, b": 1, "y" * 200: 1, "fine": 1}
    many: Json = {f"f{number}": 1 for number in range(500)}
    got = messages_over_openai(account, result("a", "x", **odd), result("b", "x", **many))
    assert "fine" in got.disclosed
    assert len(got.disclosed) == 40
    assert all(name == "fine" or name[0] == "f" for name in got.disclosed)


def test_disabled_thinking_is_an_effort_of_none_if_the_model_takes_that(account: Customer) -> None:
    disabled: Json = {"thinking": {"type": "disabled"}, "messages": HELLO}
    told = Received(account, "messages", "sim/test/takes-no-effort", **disabled)
    assert (told.body["reasoning_effort"], told.disclosed) == ("none", set())
    untold = Received(account, "messages", "sim/test/describe", **disabled)
    assert ("reasoning_effort" in untold.body, untold.disclosed) == (False, {"thinking"})


@pytest.mark.parametrize(
    "block",
    [
        {"type": "server_tool_use", "id": "x", "name": "web_search", "input": {"query": "y"}},
        {"type": "web_search_tool_result", "tool_use_id": "x", "content": []},
    ],
    ids=lambda block: block["type"],
)
def test_a_history_of_tools_that_a_provider_ran_is_refused_with_what_to_do(account: Customer, block: Json) -> None:
    asked = [*HELLO, {"role": "assistant", "content": [block, text("Found.")]}, *HELLO]
    reply = account.http.post("/v1/messages", json={"model": "sim/test/echo", "max_tokens": 9, "messages": asked})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages[1].content[0].type")
    assert "Leave it out, or send it as text." in reply.json()["error"]["message"]
    assert bills.untouched(account)


# --- Anything over a provider of Anthropic's dialect


def test_files_reach_claude_through_chat(account: Customer) -> None:
    files = [
        {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}, **CACHED},
        {"type": "file", "file": {"file_data": TEXT, "filename": None, "file_id": None}},
    ]
    got = Received(
        account, "chat/completions", "simanthropic/claude/describe", messages=[{"role": "user", "content": files}]
    )
    assert got.messages[0]["content"] == [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQ="},
            "title": "a.pdf",
            **CACHED,
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "# Grüße"}},
    ]
    assert got.disclosed == set()


def test_files_and_pictures_reach_claude_through_responses_in_their_places(account: Customer) -> None:
    picture = {"type": "input_image", "image_url": PNG_URL, "detail": "auto"}
    called = [{"type": "function_call", "call_id": call, "name": "look", "arguments": "{}"} for call in ("a", "b")]
    items: list[Json] = [
        {"role": "user", "content": [{"type": "input_file", "file_data": PDF, "filename": "a.pdf"}]},
        *called,
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "A"}, picture]},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "B"}, picture]},
    ]
    got = Received(account, "responses", "simanthropic/claude/describe", input=items)
    assert got.messages[0]["content"][0]["source"]["media_type"] == "application/pdf"
    assert [(each["tool_use_id"], each["content"]) for each in got.messages[2]["content"]] == [
        (call, [text(call.upper()), {"type": "image", "source": PNG}]) for call in ("a", "b")
    ]
    assert got.disclosed == set()
    moved = Received(account, "responses", "sim/test/describe", input=items)
    assert [each["role"] for each in moved.messages] == ["user", "assistant", "tool", "tool", "user"]
    assert moved.messages[3]["content"] == "B\n[Attachment 2 is in the next message]"
    assert moved.disclosed == {"function_call_output"}


@pytest.mark.parametrize(
    ("file", "field"),
    [
        ({"file_data": "data:application/zip;base64,AA=="}, "file_data"),
        ({"file_data": "data:text/plain;base64,/w=="}, "file_data"),
        ({"file_data": "JVBERi0xLjQ="}, "file_data"),
        ({}, "file_data"),
    ],
)
def test_other_files_are_refused_in_the_words_of_the_client(account: Customer, file: Json, field: str) -> None:
    chat = {
        "model": "simanthropic/claude/echo",
        "messages": [*HELLO, {"role": "user", "content": [{"type": "file", "file": file}]}],
    }
    assert refusal(account.http.post("/v1/chat/completions", json=chat)).param == f"messages[1].content[0].file.{field}"
    items = [*HELLO, {"role": "user", "content": [{"type": "input_file", **file}]}]
    reply = account.http.post("/v1/responses", json={"model": "simanthropic/claude/echo", "input": items})
    assert refusal(reply).param == f"input[1].content[0].{field}"
    assert message(reply).startswith(f"`input[1].content[0].{field}` must ")


@pytest.mark.parametrize("model", ["sim/test/echo", "simanthropic/claude/echo"])
def test_ids_of_files_are_refused_everywhere(account: Customer, model: str) -> None:
    """An id would name a file of the operator's."""
    asked: dict[str, tuple[Json, str]] = {
        "chat/completions": ({"type": "file", "file": {"file_id": "file-1"}}, "file.file_id"),
        "responses": ({"type": "input_file", "file_id": "file-1"}, "file_id"),
        "messages": ({"type": "document", "source": {"type": "file", "file_id": "file_1"}}, "source.file_id"),
    }
    for path, (block, param) in asked.items():
        body = {"model": model, "max_tokens": 9, PATHS[path]: [{"role": "user", "content": [block]}]}
        if path == "responses":
            del body["max_tokens"]
        error = account.http.post(f"/v1/{path}", json=body).json()["error"]
        assert error["param"] == f"{PATHS[path]}[0].content[0].{param}"
        assert "files are not kept here" in error["message"]
    assert bills.untouched(account)


def test_json_without_a_schema_is_an_instruction_and_auto_may_choose_such_a_route(account: Customer) -> None:
    wanted: Json = {"response_format": {"type": "json_object"}}
    told = "Answer with one JSON object and nothing else: no words around it and no Markdown fence."
    system = [{"role": "system", "content": "Be brief."}]
    got = Received(account, "chat/completions", "simanthropic/claude/describe", messages=[*system, *HELLO], **wanted)
    assert got.body["system"] == [text("Be brief."), text(told)]
    assert got.disclosed == {"response_format"}
    assert "output_config" not in got.body
    got = Received(account, "responses", "auto/claude/describe", input="hi", text={"format": {"type": "json_object"}})
    assert (got.body["system"], got.disclosed) == ([text(told)], {"text.format"})


def test_keywords_of_a_schema_that_claude_lacks_are_disclosed_by_the_clients_name(account: Customer) -> None:
    form = {"type": "json_schema", "name": "age", "schema": {"type": "integer", "minimum": 1}}
    tool = {"type": "function", "name": "t", "strict": True, "parameters": {"properties": {"a": {"maxLength": 3}}}}
    got = Received(
        account, "responses", "simanthropic/claude/describe", input="hi", text={"format": form}, tools=[tool]
    )
    assert got.body["output_config"]["format"]["schema"] == {"type": "integer", "description": "{minimum: 1}"}
    assert got.body["tools"][0]["input_schema"]["properties"] == {"a": {"description": "{maxLength: 3}"}}
    assert got.disclosed == {"text.format", "maxLength"}


def test_fields_that_claude_does_not_get_are_disclosed(account: Customer) -> None:
    asked: list[Json] = [
        {
            "role": "user",
            "name": "ann",
            "content": [{"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}}],
        },
        {"role": "assistant", "content": "Hm.", "reasoning_content": "I think.", "annotations": [], "refusal": None},
        {"role": "user", "content": "And?"},
    ]
    got = Received(account, "chat/completions", "simanthropic/claude/describe", messages=asked)
    assert got.disclosed == {"name", "detail", "reasoning_content"}
    signed = [{"type": "thinking", "thinking": "I think.", "signature": "sig", "index": 0}]
    asked[1] |= {"thinking_blocks": signed}
    kept = Received(account, "chat/completions", "simanthropic/claude/describe", messages=asked)
    assert kept.disclosed == {"name", "detail"}


# --- Responses over a chat


def test_fields_of_a_response_that_a_chat_does_not_get_are_disclosed(account: Customer) -> None:
    cited = {"type": "url_citation", "url": "https://x.example", "title": "X", "start_index": 0, "end_index": 1}
    items: list[Json] = [
        {"role": "user", "content": [{"type": "input_image", "image_url": PNG_URL, "detail": "original"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
        {
            **{"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "commentary"},
            "content": [{"type": "output_text", "text": "Yes.", "annotations": [cited]}],
        },
        {"role": "user", "content": "And?"},
    ]
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
    got = Received(
        account,
        "responses",
        "sim/test/describe",
        input=items,
        truncation="auto",
        max_tool_calls=3,
        reasoning={"summary": "auto"},
        client_metadata={"turn": "1"},
        tools=[{"type": "custom", "name": "patch", "format": grammar}],
    )
    assert got.disclosed == {
        *("truncation", "max_tool_calls", "reasoning.summary", "client_metadata", "format"),
        *("detail", "encrypted_content", "phase", "annotations"),
    }


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_truncation_is_answered_as_it_is_done(account: Customer, *, streams: bool) -> None:
    body = {"model": "sim/test/echo", "input": "hi", "truncation": "auto", "stream": streams}
    reply = account.http.post("/v1/responses", json=body)
    assert reply.headers["X-Gateway-Adjusted-Params"] == "truncation"
    assert '"truncation":"disabled"' in reply.text
    assert '"truncation":"auto"' not in reply.text


def test_an_upstream_that_has_the_api_itself_gets_every_field(account: Customer) -> None:
    asked: Json = {"input": "hi", "truncation": "auto", "max_tool_calls": 3, "reasoning": {"summary": "auto"}}
    reply = account.http.post("/v1/responses", json={"model": "sim/native/describe", **asked})
    received = json.loads(reply.json()["output"][0]["content"][0]["text"])["body"]
    assert {name: received[name] for name in asked} == asked
    assert "X-Gateway-Adjusted-Params" not in reply.headers


# --- Citations

PAGE: Json = {"url": "https://cited.example/page", "title": "A page"}
MODES = pytest.mark.parametrize("cap", [16, 1000, None], ids=["whole", "aggregated", "streamed"])


@MODES
@pytest.mark.parametrize("way", ["sim/test", "simanthropic/claude"])
def test_a_response_has_citations_as_annotations(account: Customer, way: str, cap: int | None) -> None:
    asked: Any = {"model": f"{way}/citations", "input": "hello there", "max_output_tokens": cap or 16}
    if cap is None:
        with account.openai().responses.stream(**asked) as events:
            told = [each for each in events if each.type == "response.output_text.annotation.added"]
            answer: Any = events.get_final_response()
        added = [each.annotation.to_dict() for each in told if each.annotation]
    else:
        answer = account.openai().responses.create(**asked)
        added = answer.to_dict()["output"][0]["content"][0]["annotations"]
    assert answer.output_text == "hello there"
    annotations = [annotation.to_dict() for annotation in answer.output[0].content[0].annotations]
    assert annotations == added
    if way == "sim/test":
        assert annotations == [{"type": "url_citation", "start_index": 0, "end_index": 11, **PAGE}]
        return
    page, document = annotations
    assert {name: page[name] for name in ("type", *PAGE, "cited_text")} == {
        "type": "url_citation", **PAGE, "cited_text": "hello"
    }  # fmt: skip
    assert page["start_index"] == page["end_index"] == (0 if cap is None else 11)
    assert {name: document[name] for name in ("type", "file_id", "filename", "index", "start_char_index")} == {
        "type": "file_citation", "file_id": "", "filename": "A document", "index": 1, "start_char_index": 6
    }  # fmt: skip


@MODES
def test_a_message_has_the_pages_that_a_chat_cites(account: Customer, cap: int | None) -> None:
    asked: Any = {"model": "sim/test/citations", "messages": HELLO, "max_tokens": cap or 16}
    if cap is None:
        with account.anthropic().messages.stream(**asked) as events:
            answer = events.get_final_message()
    else:
        answer = account.anthropic().messages.create(**asked)
    (block,) = answer.content
    said = block.to_dict()
    citation = {"type": "web_search_result_location", **PAGE, "cited_text": "", "encrypted_index": ""}
    assert (said["text"], said["citations"]) == ("hello there", [citation])
    back = [*HELLO, {"role": "assistant", "content": [said]}, *HELLO]
    got = Received(account, "messages", "simanthropic/claude/describe", messages=back)
    assert got.messages[1]["content"] == [text("hello there")]


def test_the_start_of_a_message_and_the_counting_estimate_alike(account: Customer) -> None:
    """If the provider has not counted, both estimate alike; a long prompt is sampled and is within a tenth."""
    tool: Json = {"name": "look", "description": "Looks at a place.", "input_schema": {"type": "object"}}
    prose = " ".join(f"Line {number} of a file that someone reads, and says so." for number in range(2000))
    for words, slack in (("hello there", 0.0), (prose, 0.1)):
        asked: Json = {
            "model": "sim/test/echo",
            "messages": [{"role": "user", "content": words}],
            "system": "Be brief.",
            "tools": [tool],
        }
        counted = account.http.post("/v1/messages/count_tokens", json=asked).json()["input_tokens"]
        reply = account.http.post("/v1/messages", json={**asked, "max_tokens": 9, "stream": True})
        start = json.loads(reply.text.split("data: ", 1)[1].split("\n", 1)[0])
        assert start["message"]["usage"]["input_tokens"] == pytest.approx(counted, rel=slack, abs=0)


# --- Errors name the fields of the client's API


@pytest.mark.parametrize(
    ("field", "value", "instead"),
    [
        ("messages", HELLO, "input"),
        ("max_tokens", 5, "max_output_tokens"),
        ("max_completion_tokens", 5, "max_output_tokens"),
        ("response_format", {"type": "text"}, "text.format"),
        ("reasoning_effort", "low", "reasoning.effort"),
        ("verbosity", "low", "text.verbosity"),
        ("logprobs", True, "top_logprobs"),
        ("functions", [], "tools"),
    ],
)
def test_a_field_of_a_chat_is_refused_by_its_own_name(account: Customer, field: str, value: Any, instead: str) -> None:
    for given in ({"input": "x"}, {}):
        reply = account.http.post("/v1/responses", json={"model": "sim/test/echo", field: value, **given})
        assert refusal(reply).param == field
        assert message(reply) == f"`{field}` must be absent: it is a field of chat completions. Send `{instead}`."


AUDIO: Json = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
SPOKEN: Json = {"role": "assistant", "content": "Hm."}


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([*HELLO, {"role": "user", "content": [AUDIO]}], "input[1].content[0].type"),
        (
            [*HELLO, {"role": "user", "content": [{"type": "input_image", "image_url": "ftp://x"}]}],
            "input[1].content[0].image_url",
        ),
        (
            [
                *HELLO,
                {"type": "reasoning", "summary": []},
                SPOKEN,
                {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "look", "arguments": "{no"},
            ],
            "input[4].arguments",
        ),
        (
            [
                *HELLO,
                {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
                {
                    "type": "function_call_output",
                    "call_id": "a",
                    "output": [{"type": "input_text", "text": "x"}, AUDIO],
                },
            ],
            "input[2].output[1].type",
        ),
    ],
)
def test_a_fault_of_the_chat_goes_by_the_item_and_the_part(account: Customer, items: list[Json], param: str) -> None:
    asked = {"model": "simanthropic/claude/echo", "input": items, "instructions": "Be brief."}
    reply = account.http.post("/v1/responses", json=asked)
    assert refusal(reply).param == param
    assert message(reply).startswith(f"`{param}` must ")


@pytest.mark.parametrize(
    ("path", "model", "fields", "param"),
    [
        ("responses", "simanthropic/claude/echo", {"top_logprobs": 2}, "top_logprobs"),
        ("responses", "simanthropic/claude/echo", {"include": ["message.output_text.logprobs"]}, "include"),
        ("responses", "simanthropic/claude/echo", {"text": {"verbosity": "low"}}, "text.verbosity"),
        ("responses", "sim/text/echo", {"text": {"format": {"type": "json_object"}}}, "text.format"),
        (
            "messages",
            "sim/text/echo",
            {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
            "output_config.format",
        ),
    ],
)
def test_what_a_route_does_not_take_goes_by_the_name_that_was_sent(
    account: Customer, path: str, model: str, fields: Json, param: str
) -> None:
    cap: Json = {} if path == "responses" else {"max_tokens": 9}
    reply = account.http.post(f"/v1/{path}", json={"model": model, PATHS[path]: HELLO, **cap, **fields})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert error["message"].startswith(f"`{param}` asks for")


def test_nulls_within_the_parts_of_a_content_are_absent(account: Customer) -> None:
    part: Json = {"type": "image_url", "image_url": {"url": PNG_URL, "detail": None}, "cache_control": None}
    asked = [{"role": "user", "content": [text("Look.", annotations=None), part]}]
    got = Received(account, "chat/completions", "sim/test/describe", messages=asked)
    assert got.messages[0]["content"] == [text("Look."), {"type": "image_url", "image_url": {"url": PNG_URL}}]
