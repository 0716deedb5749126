"""What an upstream says in an error is found in every shape in use: words, status, code, field, an overflow."""

import json
from typing import Any

import pytest

from inference.dialects.base import parse_object
from inference.dialects.errors import ErrorReport, ReportedError, report_of, report_of_body
from tests.inference.dialects import recorded_anthropic, recorded_openai

WORDS = "No such thing."
# As providers, and clients that look for it, have it.
OVERFLOWS = [
    "prompt is too long: 213462 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Input is too long for requested model.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input tokens exceed the configured limit of 272000 tokens.",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "`inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3000 `inputs` tokens and 20 `max_new_tokens`",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
    "Invalid request: Your request exceeded model token limit: 262144",
    "invalid params, context window exceeds limit",
    "Context size has been exceeded.",
]
NO_OVERFLOWS = [
    "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for this model",
    "Request exceeds the maximum size",
    "Request too large on tokens per minute (TPM): Limit 6000, Requested 7000",
    "Too many tokens per day, please wait before trying again.",
    "Invalid 'user': string too long. Expected a string with maximum length 64.",
    "temperature exceeds the maximum of 2",
    "Unsupported key response_format",
]


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": WORDS}},
        {"error": WORDS},
        {"message": WORDS},
        {"detail": WORDS},
        {"error": {"error": {"message": WORDS}}},
        {"error": True, "message": WORDS},
        [{"error": {"message": WORDS}}],
        {"detail": [{"loc": ["body", "n"], "msg": WORDS, "type": "missing"}]},
        {"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": WORDS}]}},
    ],
)
def test_words_are_found_in_the_shapes_of_compatible_servers(body: Any) -> None:
    assert report_of_body(500, json.dumps(body).encode()).words == WORDS


def test_a_refusal_in_words_that_are_no_json_is_quoted() -> None:
    rejection = b"Failed to deserialize the JSON body into the target type: missing field `x`\n"
    assert report_of_body(422, rejection).words == rejection.decode().strip()
    assert report_of_body(413, b"The prompt is too long.").code == "context_length_exceeded"
    assert report_of_body(401, b"Key abc is wrong.").words == report_of_body(502, b"No route to db-1.").words == ""


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html>", b" <!DOCTYPE html>", b"[]", b"7", b"{}", b'{"error": {"mess', b"\xff\xfe", b"a\0b"),
        *(b'{"error": {}}', b'{"error": ["a", 7]}', b'{"error": {"message": 7}}'),
    ],
)
def test_an_error_without_words_has_its_status_alone(body: bytes) -> None:
    assert report_of_body(400, body) == ErrorReport(status=400)


@pytest.mark.parametrize(
    "body", [recorded_openai.STATUS_401, recorded_anthropic.STATUS_401], ids=["openai", "anthropic"]
)
def test_words_that_may_hold_a_key_are_not_kept(body: bytes) -> None:
    assert report_of_body(401, body).words == report_of_body(403, body).words == ""
    with pytest.raises(ReportedError, match=r"^answered with an error$") as caught:
        parse_object(body)
    assert caught.value.status == 401


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": 400}, 400),
        ({"code": "413"}, 413),
        ({"status": 422}, 422),
        ({"code": 429, "type": "invalid_request_error"}, 429),
        ({"type": "invalid_request_error", "code": "unsupported_value"}, 400),
        ({"type": "invalid_request_error", "code": "invalid_api_key"}, 401),
        ({"type": "invalid_request_error", "code": "insufficient_quota"}, 429),
        ({"type": "BadRequestError", "code": 400}, 400),
        ({"code": 400, "status": "INVALID_ARGUMENT"}, 400),
        ({"type": "request_too_large"}, 413),
        ({"type": "overloaded_error"}, 529),
        ({"type": "new_error"}, None),
        ({"code": 7, "status": 200}, None),
    ],
)
def test_an_error_in_an_answers_place_means_a_status(error: dict[str, Any], status: int | None) -> None:
    assert report_of({"error": {"message": WORDS, **error}}).status == status


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"error": {"message": WORDS, "param": "messages[2].role"}}, "messages[2].role"),
        ({"detail": [{"loc": ["body", "messages", 0, "content"], "msg": WORDS}]}, "messages.0.content"),
        ({"error": {"message": "max_tokens: 100000 > 8192"}}, "max_tokens"),
        ({"error": {"message": "messages.0.content.1: Field required"}}, "messages"),
        ({"error": {"message": "tools[3].name: Field required"}}, "tools"),
        ({"error": {"message": WORDS, "param": None}}, None),
        ({"error": {"message": "prompt is too long: 2 tokens"}}, None),
    ],
)
def test_the_field_in_question_is_found(body: dict[str, Any], param: str | None) -> None:
    assert report_of(body, status=400).param == param


@pytest.mark.parametrize("words", OVERFLOWS)
@pytest.mark.parametrize("status", [400, 413, 422, None])
def test_a_context_overflow_has_one_code_whoever_says_it(words: str, status: int | None) -> None:
    report = report_of({"error": {"message": words, "code": "bad_request"}}, status=status)
    assert (report.code, report.status) == ("context_length_exceeded", status or 400)


def test_a_context_overflow_is_known_by_its_name() -> None:
    error = {"code": 400, "message": WORDS, "type": "exceed_context_size_error", "n_ctx": 4096}
    assert report_of({"error": error}).code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("words", "status"), [*((words, 400) for words in NO_OVERFLOWS), *((OVERFLOWS[0], code) for code in (429, 500))]
)
def test_nothing_else_is_a_context_overflow(words: str, status: int) -> None:
    assert report_of({"error": {"message": words, "code": "bad_request"}}, status=status).code == "bad_request"
