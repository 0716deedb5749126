"""Calls, blocks, events and errors in the odd shapes of some upstreams reach clients whole, in every way they can."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests import bills
from tests.catalogue import model, provider
from tests.chat import PATH, question
from tests.inference.odd_answers import JSON, SSE, chunk, streamed, whole
from tests.inference.odd_upstream import Script, http, listening
from tests.inference.six_ways import WAYS, Answer, ask
from tests.inference.test_what_upstreams_send import (
    CALLED,
    COUNTED,
    END,
    TEXT_BLOCK,
    TOOL_BLOCK,
    F,
    G,
    block,
    call,
    fragment,
    messages,
    raw_input,
    raw_text,
    said,
)
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]
USAGE = COUNTED["usage"]


def whole_calls(calls: Any, finish: str = "tool_calls", **message: Any) -> bytes:
    """Returns a whole answer with these calls, valid or not."""
    return whole(
        {
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": calls, **message},
            "finish_reason": finish,
        },
        usage=USAGE,
    )


def whole_said(finish: str = "stop", **message: Any) -> bytes:
    return whole({"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}, usage=USAGE)


def old(name: str | None, arguments: str) -> Json:
    return chunk({"function_call": {**({"name": name} if name else {}), "arguments": arguments}})


CALL_F, CALL_G = fragment("a", "f", '{"p":1}', type="function"), fragment("b", "g", '{"p":2}', type="function")
ONE = Answer(calls=(F,), call_ids=("a",), finish="tool_calls")
TWO = Answer(calls=(F, G), call_ids=("a", "b"), finish="tool_calls")
STREAMS: dict[str, tuple[bytes, Answer]] = {
    "one-call-as-an-object": (streamed(chunk({"tool_calls": CALL_F}), *CALLED), ONE),
    "pieces-of-a-call-as-objects": (
        streamed(
            chunk({"tool_calls": fragment("a", "f", '{"p"')}),
            chunk({"tool_calls": fragment(None, None, ":1}")}),
            *CALLED,
        ),
        ONE,
    ),
    "arguments-said-again": (
        streamed(
            call("a", "f", ""), call(None, None, '{"p"'), call(None, None, ":1}"), call("a", "f", '{"p":1}'), *CALLED
        ),
        ONE,
    ),
    "arguments-said-again-without-a-name": (
        streamed(
            call("a", "f", ""), call(None, None, '{"p"'), call(None, None, ":1}"), call(None, None, '{"p":1}'), *CALLED
        ),
        ONE,
    ),
    "arguments-said-again-before-a-call-of-the-same-number": (
        streamed(
            *(
                call(None, name, arguments)
                for tool, said in (("f", '{"p":1}'), ("g", '{"p":2}'))
                for name, arguments in ((tool, ""), (None, said), (None, said))
            ),
            *CALLED,
        ),
        Answer(calls=(F, G), finish="tool_calls"),
    ),
    "nothing-more-before-a-call-of-the-same-number": (
        streamed(call(None, "f", '{"p":1}'), call(None, None, ""), call(None, "g", '{"p":2}'), *CALLED),
        Answer(calls=(F, G), finish="tool_calls"),
    ),
    "names-and-arguments-null": (
        streamed(
            chunk(
                {
                    "tool_calls": [
                        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": None}}
                    ]
                }
            ),
            chunk(
                {
                    "tool_calls": [
                        {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": '{"p":1}'}}
                    ]
                }
            ),
            *CALLED,
        ),
        ONE,
    ),
    "ids-and-types-empty": (
        streamed(
            chunk({"tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
            chunk({"tool_calls": [{"id": "", "type": "", "function": {"arguments": '{"p":1}'}}]}),
            *CALLED,
        ),
        ONE,
    ),
    "ids-of-numbers": (
        streamed(chunk({"tool_calls": [{**CALL_F, "id": 7}, {**CALL_G, "id": 8, "index": 1}]}), *CALLED),
        Answer(calls=(F, G), finish="tool_calls"),
    ),
    "indexes-in-words": (
        streamed(call("a", "f", '{"p":1}', index="0"), call("b", "g", '{"p":2}', index="1"), *CALLED),
        TWO,
    ),
    "function-without-a-wrapper": (
        streamed(
            chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function", "name": "f", "arguments": '{"p":1}'}]}),
            *CALLED,
        ),
        ONE,
    ),
    "role-and-nulls-in-every-chunk": (
        streamed(
            chunk({"role": "assistant", "content": None, "reasoning_content": "h", "tool_calls": None}),
            chunk({"role": None, "content": "", "reasoning_content": "m", "tool_calls": []}, ""),
            chunk({"role": "assistant", "content": "a", "reasoning_content": None}, ""),
            *END,
        ),
        Answer("a", "hm", finish="stop"),
    ),
    "annotations-without-a-delta": (
        streamed(
            {"choices": [], "id": "", "prompt_filter_results": [{"prompt_index": 0}]},
            said("a"),
            {"id": "", "choices": [{"index": 0, "finish_reason": None, "content_filter_results": {"hate": {}}}]},
            said("b"),
            {"id": "", "choices": None},
            {"id": "", "choices": [None]},
            *END,
        ),
        Answer("ab", finish="stop"),
    ),
    "reasoning-in-parts": (
        streamed(
            chunk({"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]}),
            chunk({"content": [{"type": "text", "text": "a"}]}),
            *END,
        ),
        Answer("a", "hm", finish="stop"),
    ),
    "reasoning-text": (streamed(chunk({"reasoning_text": "hm"}), said("a"), *END), Answer("a", "hm", finish="stop")),
    "comments-as-data": (
        streamed(b"data: : OPENROUTER PROCESSING\n\n" * 3, said("a"), b"data: : PROCESSING\n\n" * 2, *END),
        Answer("a", finish="stop"),
    ),
    "pings-as-data": (
        streamed(*[b'data: {"type":"ping"}\n\n', b"data: {}\n\n"], said("a"), *END),
        Answer("a", finish="stop"),
    ),
    "marks-of-order": (
        http(
            "200 OK",
            b"".join(b"\xef\xbb\xbfdata: %b\n\n" % orjson.dumps(each) for each in (said("a"), said("b"), *END))
            + b"\xef\xbb\xbfdata: [DONE]\n\n",
            SSE,
        ),
        Answer("ab", finish="stop"),
    ),
    "marks-of-order-and-names": (
        http(
            "200 OK",
            b"".join(
                b"\xef\xbb\xbfevent: chunk\n\xef\xbb\xbfdata: %b\n\n" % orjson.dumps(each)
                for each in (said("a"), said("b"), *END)
            )
            + b"data: [DONE]\n\n",
            SSE,
        ),
        Answer("ab", finish="stop"),
    ),
    "marks-of-order-in-data": (
        http(
            "200 OK",
            b"".join(b"data: \xef\xbb\xbf%b\n\n" % orjson.dumps(each) for each in (said("a"), said("b"), *END))
            + b"data: [DONE]\n\n",
            SSE,
        ),
        Answer("ab", finish="stop"),
    ),
    "one-line-end": (
        http(
            "200 OK",
            b"".join(b"data: %b\n" % orjson.dumps(each) for each in (said("a"), said("b"), *END)) + b"data: [DONE]\n",
            SSE,
        ),
        Answer("ab", finish="stop"),
    ),
    "done-in-json": (streamed(said("a"), *END, b'data: "[DONE]"\n\n', done=False), Answer("a", finish="stop")),
    "usage-empty-then-whole": (
        streamed(
            {**said("a"), "usage": {}},
            {**chunk({}, "stop"), "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}},
            COUNTED,
        ),
        Answer("a", finish="stop"),
    ),
    "message-beside-its-deltas": (
        streamed(
            *(
                {"choices": [{**said(each)["choices"][0], "message": {"role": "assistant", "content": so_far}}]}
                for each, so_far in (("a", "a"), ("b", "ab"))
            ),
            {**chunk({"content": ""}, "stop"), "usage": USAGE},
            done=False,
        ),
        Answer("ab", finish="stop"),
    ),
    "arguments-empty": (
        streamed(call("a", "f", ""), call(None, None, " "), *CALLED),
        Answer(calls=(("f", {}),), call_ids=("a",), finish="tool_calls"),
    ),
    "arguments-behind-a-blank": (
        streamed(call("a", "f", ""), call(None, None, " "), call(None, None, '{"p":1}'), *CALLED),
        ONE,
    ),
    "text-behind-calls": (
        streamed(call("a", "f", '{"p":1}'), said("a"), call("b", "g", '{"p":2}', index=1), *CALLED),
        Answer("a", calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "created-as-a-float": (
        streamed({**said("a"), "created": 1746709563.49, "id": None, "model": None}, *END),
        Answer("a", finish="stop"),
    ),
    "content-with-calls-and-a-finish": (
        streamed(chunk({"content": "a", "tool_calls": [CALL_F, {**CALL_G, "index": 1}]}, "stop"), COUNTED),
        Answer("a", calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "ids-alike": (
        streamed(call("a", "f", '{"p":1}'), call("a", "g", '{"p":2}', index=1), *CALLED),
        Answer(calls=(F, G), finish="tool_calls"),
    ),
}
WHOLE: dict[str, tuple[bytes, Answer]] = {
    "whole-one-call-as-an-object": (whole_calls(CALL_F), ONE),
    "whole-ids-alike": (whole_calls([CALL_F, {**CALL_G, "id": "a"}]), Answer(calls=(F, G), finish="tool_calls")),
    "whole-ids-of-numbers": (
        whole_calls([{**CALL_F, "id": 7}, {**CALL_G, "id": 8}]),
        Answer(calls=(F, G), finish="tool_calls"),
    ),
    "whole-function-without-a-wrapper": (whole_calls([{"id": "a", "name": "f", "arguments": '{"p":1}'}]), ONE),
    "whole-arguments-as-an-object": (whole_calls([{**CALL_F, "function": {"name": "f", "arguments": {"p": 1}}}]), ONE),
    "whole-reasoning-in-parts": (
        whole_said(
            content=[
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "text", "text": "a"},
            ]
        ),
        Answer("a", "hm", finish="stop"),
    ),
    "whole-reasoning-text": (whole_said(content="a", reasoning_text="hm"), Answer("a", "hm", finish="stop")),
    "whole-message-as-a-delta": (
        whole({"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}, usage=USAGE),
        Answer("a", finish="stop"),
    ),
    "whole-mark-of-order": (
        whole_said(content="a")
        .replace(b"\r\n\r\n", b"\r\n\r\n\xef\xbb\xbf")
        .replace(b"Content-Length: ", b"X-Length: "),
        Answer("a", finish="stop"),
    ),
}
TEXT_MESSAGE = messages(block(TEXT_BLOCK, raw_text("a"), raw_text("b")))
CALL_MESSAGE = messages(
    block(TEXT_BLOCK, raw_text("a")),
    block(
        TOOL_BLOCK,
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"p":1}'}},
        index=1,
    ),
    stop="tool_use",
)
ALL_COUNTED: Json = {"input_tokens": 10}


def kept(events: list[Any], *left_out: str) -> list[Any]:
    """Returns the events that are not of these types."""
    return [each for each in events if isinstance(each, bytes) or each["type"] not in left_out]


OLD_CALL = Answer(calls=(F,), finish="tool_calls")
OF_MESSAGES: dict[str, tuple[bytes, Answer]] = {
    "messages-without-a-start": (
        streamed(
            *kept(messages(block(TEXT_BLOCK, raw_text("a"), raw_text("b")), ended=ALL_COUNTED), "message_start"),
            done=False,
        ),
        Answer("ab", finish="stop"),
    ),
    "messages-without-a-block": (
        streamed(*kept(TEXT_MESSAGE, "content_block_start"), done=False),
        Answer("ab", finish="stop"),
    ),
    "messages-without-a-block-or-its-end": (
        streamed(*kept(TEXT_MESSAGE, "content_block_start", "content_block_stop"), done=False),
        Answer("ab", finish="stop"),
    ),
    "messages-without-anything-around": (
        streamed(
            *kept(
                messages(block(TEXT_BLOCK, raw_text("a"), raw_text("b")), ended=ALL_COUNTED),
                "message_start",
                "content_block_start",
                "content_block_stop",
            ),
            done=False,
        ),
        Answer("ab", finish="stop"),
    ),
    "messages-thinking-without-a-block": (
        streamed(
            *kept(
                messages(
                    block(
                        {"type": "thinking"},
                        {
                            "type": "content_block_delta",
                            "index": 0,
                            "delta": {"type": "thinking_delta", "thinking": "hm"},
                        },
                    ),
                    block(
                        TEXT_BLOCK,
                        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}},
                        index=1,
                    ),
                ),
                "content_block_start",
            ),
            done=False,
        ),
        Answer("a", "hm", finish="stop"),
    ),
    "messages-call-behind-text-without-a-block": (
        streamed(
            *[each for each in CALL_MESSAGE if isinstance(each, bytes) or each.get("content_block") != TEXT_BLOCK],
            done=False,
        ),
        Answer("a", calls=(F,), call_ids=("a",), finish="tool_calls"),
    ),
    "messages-without-an-end-of-blocks": (
        streamed(*kept(CALL_MESSAGE, "content_block_stop"), done=False),
        Answer("a", calls=(F,), call_ids=("a",), finish="tool_calls"),
    ),
    "messages-counted-at-the-end": (
        streamed(
            *messages(
                block(TEXT_BLOCK, raw_text("a")),
                started={"input_tokens": 0, "output_tokens": 0},
                ended={"input_tokens": 10},
            ),
            done=False,
        ),
        Answer("a", finish="stop"),
    ),
    "messages-ended-by-done": (streamed(*kept(TEXT_MESSAGE, "message_stop")), Answer("ab", finish="stop")),
    "messages-input-whole-at-the-start": (
        streamed(*messages(block({**TOOL_BLOCK, "input": {"p": 1}}), stop="tool_use"), done=False),
        ONE,
    ),
    "messages-input-as-text-at-the-start": (
        streamed(*messages(block({**TOOL_BLOCK, "input": ""}, raw_input(r"{\"p\":1}")), stop="tool_use"), done=False),
        ONE,
    ),
    "messages-input-behind-a-blank": (
        streamed(*messages(block(TOOL_BLOCK, raw_input(" "), raw_input(r"{\"p\":1}")), stop="tool_use"), done=False),
        ONE,
    ),
    "messages-input-of-a-blank": (
        streamed(*messages(block(TOOL_BLOCK, raw_input(" ")), stop="tool_use"), done=False),
        Answer(calls=(("f", {}),), call_ids=("a",), finish="tool_calls"),
    ),
    "messages-ids-alike": (
        streamed(
            *messages(
                block(TOOL_BLOCK, raw_input(r"{\"p\":1}")),
                block(
                    {**TOOL_BLOCK, "name": "g"},
                    {
                        "type": "content_block_delta",
                        "index": 1,
                        "delta": {"type": "input_json_delta", "partial_json": '{"p":2}'},
                    },
                    index=1,
                ),
                stop="tool_use",
            ),
            done=False,
        ),
        Answer(calls=(F, G), finish="tool_calls"),
    ),
    "messages-text-at-the-start": (
        streamed(*messages(block({"type": "text", "text": "a"}, raw_text("b"))), done=False),
        Answer("ab", finish="stop"),
    ),
}
SCRIPTS: dict[str, Script] = {name: script for name, (script, _) in (STREAMS | WHOLE | OF_MESSAGES).items()}


# These are calls in the old form, which Messages and Responses do not have.
OLD_CALLS: dict[str, tuple[bytes, Answer]] = {
    "old-calls": (
        streamed(old("f", ""), old(None, '{"p"'), old(None, ":1}"), chunk({}, "function_call"), COUNTED),
        OLD_CALL,
    ),
    "whole-old-call": (
        whole_said("function_call", content=None, function_call={"name": "f", "arguments": '{"p":1}'}),
        OLD_CALL,
    ),
    # Snowflake sends such a placeholder.
    "empty-old-call": (
        streamed(chunk({"content": "a", "function_call": {"name": "", "arguments": ""}}), chunk({}, "stop"), COUNTED),
        Answer("a", finish="stop"),
    ),
    "whole-empty-old-call": (
        whole_said(content="a", function_call={"name": "", "arguments": {}}),
        Answer("a", finish="stop"),
    ),
    "old-call-with-the-new-one": (
        streamed(chunk({"tool_calls": [CALL_F], "function_call": {"name": "f", "arguments": '{"p":1}'}}), *CALLED),
        ONE,
    ),
}
SCRIPTS |= {name: script for name, (script, _) in OLD_CALLS.items()}


TOO_WARM = "Too warm: it must be at most 2."
ERRORS: dict[str, Json] = {
    "error-detail": {"detail": TOO_WARM},
    "error-details": {"detail": [{"type": "x", "loc": ["body", "temperature"], "msg": TOO_WARM, "input": 3}]},
    "error-success": {"success": False, "message": TOO_WARM},
    "error-success-error": {"success": False, "error": TOO_WARM},
    "error-success-errors": {"success": False, "errors": [{"code": 5006, "message": TOO_WARM}], "messages": []},
    "error-errors": {"errors": [{"message": TOO_WARM}]},
    "error-errors-in-words": {"errors": [TOO_WARM]},
    "error-msg": {"code": 20015, "msg": TOO_WARM},
    "error-error-msg": {"error_code": 336003, "error_msg": TOO_WARM},
    "error-behind-a-phrase": {"error": "Bad Request", "message": [TOO_WARM]},
    "error-of-a-relay": {"error": {"message": "Provider returned error", "metadata": {"raw": TOO_WARM}}},
    "error-in-text": {"error": {"message": orjson.dumps({"error": {"message": TOO_WARM}}).decode()}},
}
TROUBLES: dict[str, tuple[str, Json]] = {
    "trouble-errors": ("400 Bad Request", {"errors": [{"message": "Invalid API key", "code": 10000}]}),
    "trouble-detail": ("400 Bad Request", {"detail": "Invalid API key"}),
    "trouble-success": ("200 OK", {"success": False, "message": "Insufficient balance"}),
    "trouble-msg": ("403 Forbidden", {"code": 30001, "msg": "Sorry, your account balance is insufficient"}),
    "trouble-in-text": (
        "400 Bad Request",
        {"error": {"message": orjson.dumps({"error": {"code": "insufficient_quota"}}).decode()}},
    ),
}
SCRIPTS |= {
    f"{name}-{status[:3]}": http(status, orjson.dumps(body), JSON)
    for name, body in ERRORS.items()
    for status in ("200 OK", "400 Bad Request", "500 Internal Server Error")
}
STREAMED_ERRORS = {f"streamed-{name}": streamed(ERRORS[name]) for name in ("error-success", "error-errors")}
SCRIPTS |= STREAMED_ERRORS
SCRIPTS |= {name: http(status, orjson.dumps(body), JSON) for name, (status, body) in TROUBLES.items()}


def provider_of(name: str) -> str:
    return "claude-varies" if name.startswith("messages-") else "varies"


@pytest.fixture(scope="module")
def gateway(gateway: GatewayServer) -> Iterator[GatewayServer]:
    with listening(SCRIPTS) as odd:
        url = f"http://127.0.0.1:{odd.port}/v1"
        gateway.offer(
            providers=[provider("varies", url), provider("claude-varies", url, dialect="anthropic")],
            models=[model(name, provider=provider_of(name), upstream_model=name) for name in SCRIPTS],
        )
        yield gateway


CAPS = {"chat": "max_tokens", "messages": "max_tokens", "responses": "max_output_tokens"}
WHOLE_WAYS = [way for way in WAYS if way.endswith("whole")]


def cap(way: str) -> Json:
    """Returns a cap below which a whole answer is not streamed from its upstream."""
    return {CAPS[way.partition(" ")[0]]: 16}


def require(customer: Customer, name: str, expected: Answer, ways: list[tuple[str, Json]]) -> None:
    """Sends the question in each of these ways, and compares the answers and the bill with what was expected."""
    for way, fields in ways:
        got = ask(customer, f"{provider_of(name)}/test/{name}", way, **fields)
        has_ids = bool(expected.call_ids) or len(set(got.call_ids)) != len(expected.calls)
        assert (way, got) == (way, expected if has_ids else Answer(**{**vars(expected), "call_ids": got.call_ids}))
    records = bills.records(customer)
    counts = {(each.prompt_tokens, each.completion_tokens, each.usage_estimated, each.flags or "") for each in records}
    assert (len(records), counts) == (len(ways), {(10, 5, False, "")})


@pytest.mark.parametrize("name", [*STREAMS, *OF_MESSAGES])
def test_what_an_upstream_streams_arrives_in_every_way(customer: Customer, name: str) -> None:
    _, expected = (STREAMS | OF_MESSAGES)[name]
    require(customer, name, expected, [(way, {}) for way in WAYS])


@pytest.mark.parametrize("name", WHOLE)
def test_what_an_upstream_answers_whole_arrives_in_every_way(customer: Customer, name: str) -> None:
    _, expected = WHOLE[name]
    require(customer, name, expected, [(way, {}) for way in WAYS] + [(way, cap(way)) for way in WHOLE_WAYS])


@pytest.mark.parametrize("name", OLD_CALLS)
def test_an_old_function_call_is_a_tool_call_in_forms_without_it(customer: Customer, name: str) -> None:
    _, expected = OLD_CALLS[name]
    ways: list[tuple[str, Json]] = [(way, {}) for way in WAYS] + [(way, cap(way)) for way in WHOLE_WAYS]
    require(customer, name, expected, [(way, fields) for way, fields in ways if not way.startswith("chat")])


def test_a_chats_call_the_old_way_stays_one(customer: Customer) -> None:
    reply = customer.http.post(PATH, json=question("varies/test/whole-old-call", max_tokens=16))
    (choice,) = reply.json()["choices"]
    assert choice["message"]["function_call"] == {"name": "f", "arguments": '{"p":1}'}
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "500 Internal Server Error"])
@pytest.mark.parametrize("name", ERRORS)
def test_any_error_is_passed_on(customer: Customer, name: str, status: str, stream: bool) -> None:
    asked = question(f"varies/test/{name}-{status[:3]}", stream=stream, temperature=1)
    reply = customer.http.post(PATH, json=asked)
    error = reply.json()["error"]
    assert reply.status_code == (400 if status.startswith("400") else 503)
    assert TOO_WARM in error["message"]
    assert "{" not in error["message"]  # the words of the error, not the JSON that they stand in
    assert bills.untouched(customer)


@pytest.mark.parametrize("name", STREAMED_ERRORS)
def test_an_error_in_a_stream_is_passed_on(customer: Customer, name: str) -> None:
    reply = customer.http.post(PATH, json=question(f"varies/test/{name}", stream=True))
    assert reply.status_code == 503
    assert TOO_WARM in reply.json()["error"]["message"]
    assert bills.untouched(customer)


@pytest.mark.parametrize("name", TROUBLES)
def test_the_operators_trouble_is_never_passed_on(customer: Customer, name: str) -> None:
    reply = customer.http.post(PATH, json=question(f"varies/test/{name}"))
    assert reply.status_code == 503
    assert "refuses the gateway itself" in reply.json()["error"]["message"]
    assert bills.untouched(customer)
