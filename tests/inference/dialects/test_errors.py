"""The parts of an upstream's error are found in every known shape: message, status, code, field, overflow."""

import json
from typing import Any

import pytest

from inference.dialects.base import parse_object
from inference.dialects.errors import STATUS_OF, ErrorReport, ReportedError, Trouble, report_of, report_of_body
from tests.inference.dialects import recorded_anthropic, recorded_openai

WORDS = "No such thing."
# These are messages of providers, and of clients that recognise them.
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


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "The prompt is too long: \\ud83d"}}',
        b'{"error": {"message": "The prompt is too long: \0"}}',
        b'{"error": {"message": "The prompt is too long: ...", "n": NaN}}',
        b'\xef\xbb\xbf{"error": {"message": "The prompt is too long: ..."}}',
    ],
    ids=["half-a-character", "control-character", "no-number", "byte-order-mark"],
)
def test_words_are_found_in_json_that_only_some_servers_write(body: bytes) -> None:
    """If an error repeats the prompt, servers in JavaScript or Python may cut a character in halves."""
    report = report_of_body(400, body)
    assert report.words.startswith("The prompt is too long: ")
    assert report.code == "context_length_exceeded"


def test_an_answer_may_begin_with_a_byte_order_mark() -> None:
    assert parse_object(b'\xef\xbb\xbf{"choices": []}') == {"choices": []}


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
    with pytest.raises(ReportedError, match=r"^refuses the gateway itself") as caught:
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
        ({"type": "invalid_request_error", "code": "insufficient_quota"}, 402),
        ({"type": "invalid_request_error", "code": "model_not_found"}, 404),
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


# Providers were seen to send these if the operator has no credit, a wrong key or a locked account: the status and the
# error.
TROUBLES: list[tuple[Trouble, int, Any]] = [
    (
        Trouble.EMPTY,
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
            },
        },
    ),
    (Trouble.EMPTY, 400, {"error": {"code": "Arrearage", "message": WORDS}}),
    (Trouble.EMPTY, 400, {"code": "Arrearage", "message": "Please make sure your account is in good standing."}),
    (Trouble.EMPTY, 400, {"error": {"code": "billing_hard_limit_reached", "message": "Billing hard limit reached"}}),
    (Trouble.EMPTY, 402, {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}}),
    (Trouble.EMPTY, 402, {"error": {"code": 402, "message": "This request requires more credits, or fewer tokens."}}),
    (Trouble.EMPTY, 402, "Payment Required"),
    (Trouble.EMPTY, 403, {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None}),
    (Trouble.EMPTY, 403, {"error": "Your newly created team doesn't have any credits or licenses yet."}),
    (Trouble.EMPTY, 429, {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota."}}),
    (
        Trouble.EMPTY,
        429,
        {"error": {"code": "1113", "message": "Insufficient balance or no package. Please recharge."}},
    ),
    (Trouble.EMPTY, 429, {"error": {"type": "exceeded_current_quota_error", "message": WORDS}}),
    (Trouble.KEY, 400, [{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]),
    (Trouble.KEY, 400, {"error": {"message": WORDS, "details": [{"reason": "API_KEY_INVALID"}]}}),
    (Trouble.KEY, 400, {"code": "Client error", "error": "Incorrect API key provided: xa***yz."}),
    (Trouble.KEY, 400, {"error": {"code": "invalid_api_key", "message": WORDS}}),
    (Trouble.KEY, 401, {"message": "Unauthorized"}),
    (Trouble.KEY, 500, {"error": {"type": "authentication_error", "message": "invalid x-api-key"}}),
    (Trouble.LOCKED, 400, {"error": {"code": "organization_restricted", "message": WORDS}}),
    (Trouble.LOCKED, 400, {"error": {"message": "This organization has been disabled."}}),
    (Trouble.LOCKED, 412, {"error": {"message": "Account 1a2b is suspended, possibly due to unpaid invoices."}}),
    (
        Trouble.LOCKED,
        429,
        {"error": {"message": "Your account org-1 <ak-1> is suspended due to insufficient balance, please recharge"}},
    ),
]
# These are about the request, or about a temporary limit.
NO_TROUBLES: list[tuple[int, Any]] = [
    (400, {"error": {"message": "Invalid value: 'Your credit balance is too low'. Supported values are: 'auto'."}}),
    (400, {"error": {"message": 'The tool "insufficient funds" is not defined.'}}),
    (400, {"error": {"message": WORDS + " " * 500 + "Your credit balance is too low"}}),
    (400, {"error": {"message": "messages.0.role: must be user, your account is of no concern"}}),
    (403, {"error": {"message": "The content was refused.", "type": "permission_error"}}),
    (404, {"error": {"code": "model_not_found", "message": "The model `x` does not exist."}}),
    (429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "You exceeded your current quota."}}),
    (429, {"error": {"code": "rate_limit_exceeded", "message": "Rate limit reached: 3 requests a minute."}}),
]


@pytest.mark.parametrize(("trouble", "status", "body"), TROUBLES, ids=str)
def test_trouble_of_the_operators_has_its_own_status_and_no_words(trouble: Trouble, status: int, body: Any) -> None:
    assert report_of(body, status=status) == ErrorReport(status=STATUS_OF[trouble], trouble=trouble)


@pytest.mark.parametrize(("status", "body"), NO_TROUBLES, ids=str)
def test_other_errors_are_not_reported_as_the_operators_trouble(status: int, body: Any) -> None:
    report = report_of(body, status=status)
    assert (report.trouble, report.status) == (None, status)


def test_the_message_of_a_403_is_not_passed_on() -> None:
    """It may contain a part of the operator's key."""
    report = report_of({"error": {"message": "The key sk-live-1 may not use this model."}}, status=403)
    assert (report.words, report.status, report.trouble) == ("", 403, None)


def test_the_message_of_a_temporary_quota_is_not_passed_on() -> None:
    """The message mentions "your plan and billing", which customers would take for their own."""
    assert report_of({"error": {"message": "You exceeded your current quota."}}, status=429).words == ""
