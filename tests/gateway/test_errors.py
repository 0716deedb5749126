"""The error classes match the table of docs/api.md#error-codes; all other exceptions are converted to them."""

import re
from collections.abc import Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults

import orjson
import pytest
from django.core import exceptions as django
from django.http import Http404, UnreadablePostError
from hypothesis import given
from hypothesis import strategies as st
from rest_framework import exceptions as drf

from gateway import errors
from gateway.edge.endpoint import at_each_path
from gateway.edge.exception_handler import drf_exception_handler, error_body, first_fault, from_exception, plain
from gateway.edge.responses import PlainResponse
from gateway.errors import AllProvidersFailed, ApiError, StepFailed, UpstreamFailed
from tests.servers.process import ROOT

# The rows of docs/api.md#error-codes are status, type, code and param. `param` of a general 400 is the field's name,
# and for an absent alias it is `model` if the request names it. The in-stream row has the status of the error before a
# stream.
SPEC = {
    (401, "authentication_error", "authentication_error", None),
    (401, "authentication_error", "api_key_malformed", None),
    (401, "authentication_error", "api_key_not_registered", None),
    (401, "authentication_error", "api_key_expired", None),
    (401, "authentication_error", "api_key_disabled", None),
    (403, "permission_error", "key_kind_not_allowed", None),
    (409, "invalid_request_error", "key_exists", "name"),
    (409, "invalid_request_error", "last_owner", None),
    (409, "invalid_request_error", "account_exists", "name"),
    (409, "invalid_request_error", "reference_conflict", "reference"),
    (402, "invalid_request_error", "insufficient_credits", None),
    (403, "permission_error", "account_suspended", None),
    (400, "invalid_request_error", "invalid_request_error", None),
    (400, "invalid_request_error", "invalid_alias_name", None),
    (413, "invalid_request_error", "request_too_large", None),
    (404, "not_found", "not_found", None),
    (404, "not_found", "alias_not_found", None),
    (404, "internal_server_error", "model_not_found", "model"),
    (503, "provider_unavailable", "provider_unavailable", "model"),
    (503, "provider_unavailable", "model_unavailable", "model"),
    (503, "provider_error", "provider_error", None),
    (503, "provider_unavailable", "provider_not_configured", None),
    (503, "internal_server_error", "service_unavailable", "model"),
    (503, "provider_unavailable", "provider_quota_exhausted", "model"),
    (504, "provider_unavailable", "provider_timeout", None),
    (503, "provider_error", "cost_unresolvable", None),
    (429, "invalid_request_error", "rate_limit_exceeded", None),
    (429, "rate_limit_error", "rate_limit_exceeded", None),
    (409, "invalid_request_error", "alias_exists", "name"),
    (422, "invalid_request_error", "alias_limit_reached", "name"),
    (422, "invalid_request_error", "invalid_alias_target", "target"),
    (500, "internal_server_error", "internal_server_error", None),
}
OURS = {
    (503, "internal_server_error", "service_unavailable", None),  # a stopping replica gives requests up, for any model
    (405, "invalid_request_error", "method_not_allowed", None),
    (426, "invalid_request_error", "upgrade_required", None),
    (402, "invalid_request_error", "budget_exceeded", None),
    (404, "not_found", "receipt_not_ready", None),
    (403, "permission_error", "policy_denied", "model"),
    (409, "invalid_request_error", "idempotency_in_progress", None),
    (409, "invalid_request_error", "idempotency_replayed", None),
    (409, "invalid_request_error", "idempotency_key_reused", None),
    (503, "provider_unavailable", "provider_unavailable", None),  # every candidate of an auto id failed
}
# SDKs retry these by themselves, and should.
PASSING = {"provider_unavailable", "provider_error", "service_unavailable", "idempotency_in_progress"} | {
    "provider_timeout",
    "rate_limit_exceeded",
    "internal_server_error",
    "receipt_not_ready",
}


def family(parent: type[ApiError] = ApiError) -> Iterator[type[ApiError]]:
    yield parent
    for child in parent.__subclasses__():
        yield from family(child)


FAMILY = sorted(set(family()), key=lambda kind: kind.__name__)


def made(kind: type[ApiError]) -> ApiError:
    if issubclass(kind, AllProvidersFailed):
        return kind("It broke.", retry=True, providers_attempted=["a", "b"])
    return kind("settling the charge") if kind is not ApiError else kind()


def body_of(error: ApiError) -> dict[str, Any]:
    return json_of(plain(error))["error"]


def json_of(response: PlainResponse) -> dict[str, Any]:
    assert isinstance(response.body, bytes)
    body: dict[str, Any] = orjson.loads(response.body)
    return body


def test_the_family_is_the_table_of_the_spec() -> None:
    assert {(kind.status, kind.type, kind.code, kind.param) for kind in FAMILY} == SPEC | OURS


def test_the_tables_of_the_documents_list_each_of_them_and_no_other() -> None:
    api, guide = ((ROOT / "docs" / name).read_text() for name in ("api.md", "guide.md"))
    family = {(kind.status, kind.type, kind.code) for kind in FAMILY}
    rows = re.findall(r"^\| (\d{3}|in a stream) \| `(\w+)` \| `(\w+)`", api, re.MULTILINE)
    assert {(503 if status == "in a stream" else int(status), *row) for status, *row in rows} == {
        row for row in family if row[0] != 401
    }
    rows_of_401 = re.findall(r"^\| [^|]+ \| `(api_key_\w+|authentication_error)`", api, re.MULTILINE)
    assert set(rows_of_401) == {code for status, _type, code in family if status == 401}
    advice = re.findall(r"^\| (?:\d{3}|in a stream) \| ([^|]+) \|", guide, re.MULTILINE)
    advised = set(re.findall(r"`(\w+)`", " ".join(advice)))
    assert advised - {"context_length_exceeded"} == {code for _status, _type, code in family}


def test_the_docstring_draws_the_whole_family() -> None:
    drawing = errors.__doc__ or ""
    assert [kind.__name__ for kind in FAMILY if kind.__name__ not in drawing] == []


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_each_error_renders_to_the_envelope(kind: type[ApiError]) -> None:
    error = made(kind)
    response = plain(error)
    assert response.status == kind.status
    assert response.headers["Content-Type"] == "application/json"
    context = (
        {"providers_attempted": ["a", "b"], "last_error": "It broke."} if issubclass(kind, AllProvidersFailed) else {}
    )
    assert json_of(response) == {
        "error": {"type": kind.type, "message": error.message, "code": kind.code, "param": kind.param, **context}
    }
    assert error.message
    assert str(error) == error.message


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_both_renderers_agree(kind: type[ApiError]) -> None:
    whole, folded = plain(made(kind)), drf_exception_handler(made(kind), {})
    assert folded.status_code == whole.status
    assert folded.data == json_of(whole)
    assert folded.headers.get("x-should-retry") == whole.headers.get("x-should-retry")


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_a_futile_retry_is_said_to_be_one(kind: type[ApiError]) -> None:
    futile = plain(made(kind)).headers.get("x-should-retry") == "false"
    futile_kinds = (errors.UnpricedRoute, errors.UsageContradicted, errors.ProviderUnavailable)
    assert futile == (kind.code not in PASSING or kind in futile_kinds)


def test_an_upstream_failure_says_itself_whether_to_try_again() -> None:
    assert "x-should-retry" not in plain(UpstreamFailed("It broke.")).headers
    assert plain(UpstreamFailed("It will not do.", retry=False)).headers["x-should-retry"] == "false"


def test_an_error_takes_its_words_field_and_headers() -> None:
    error = errors.InvalidRequest("Too hot.", param="temperature", headers={"Connection": "close"})
    assert (body_of(error)["message"], body_of(error)["param"]) == ("Too hot.", "temperature")
    assert plain(error).headers["Connection"] == "close"


def test_the_context_of_a_fallback_is_shown_if_there_is_one() -> None:
    error = errors.ProviderUnavailable("All failed.", providers_attempted=["a", "b"], last_error="503")
    assert (body_of(error)["providers_attempted"], body_of(error)["last_error"]) == (["a", "b"], "503")


def test_a_broken_step_is_named_and_nothing_more() -> None:
    assert body_of(StepFailed("listing the models"))["message"] == "Internal error while listing the models."


def test_a_broken_step_says_what_is_known_of_the_charge() -> None:
    assert body_of(StepFailed("routing the request", errors.NOTHING_BILLED))["message"] == (
        "Internal error while routing the request. Nothing was billed."
    )


FOLDED = [
    (drf.ValidationError({"messages": ["Required."]}), 400, "invalid_request_error", "messages"),
    (drf.ValidationError("No."), 400, "invalid_request_error", None),
    (drf.ValidationError([]), 400, "invalid_request_error", None),
    (drf.ParseError(), 400, "invalid_request_error", None),
    (drf.UnsupportedMediaType("text/plain"), 400, "invalid_request_error", None),
    (drf.NotAcceptable(), 400, "invalid_request_error", None),
    (drf.AuthenticationFailed(), 401, "authentication_error", None),
    (drf.NotAuthenticated(), 401, "authentication_error", None),
    (drf.PermissionDenied(), 404, "not_found", None),
    (drf.NotFound(), 404, "not_found", None),
    (drf.MethodNotAllowed("PUT"), 405, "method_not_allowed", None),
    (drf.Throttled(wait=2.5), 429, "rate_limit_exceeded", None),
    (drf.APIException(), 500, "internal_server_error", None),
    (Http404(), 404, "not_found", None),
    (django.PermissionDenied(), 404, "not_found", None),
    (django.BadRequest(), 400, "invalid_request_error", None),
    (django.DisallowedHost(), 400, "invalid_request_error", None),
    (django.SuspiciousOperation(), 400, "invalid_request_error", None),
    (django.TooManyFieldsSent(), 400, "invalid_request_error", None),
    (django.RequestDataTooBig(), 413, "request_too_large", None),
    (django.ValidationError(["One.", "Two."]), 400, "invalid_request_error", None),
    (UnreadablePostError(), 400, "invalid_request_error", None),
    (django.ObjectDoesNotExist(), 500, "internal_server_error", None),
    (ZeroDivisionError("secret"), 500, "internal_server_error", None),
]


@pytest.mark.parametrize(("error", "status", "code", "param"), FOLDED, ids=lambda value: type(value).__name__)
def test_other_exceptions_are_folded_into_the_family(
    error: Exception, status: int, code: str, param: str | None
) -> None:
    known = from_exception(error)
    assert (known.status, known.code, known.param) == (status, code, param)
    assert "secret" not in known.message


def test_every_exception_of_rest_framework_is_in_that_list() -> None:
    theirs = {kind for kind in vars(drf).values() if isinstance(kind, type) and issubclass(kind, drf.APIException)}
    assert theirs == {type(error) for error, *_ in FOLDED if isinstance(error, drf.APIException)}


def test_only_unforeseen_exceptions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    for error, status, *_ in FOLDED:
        caplog.clear()
        from_exception(error)
        assert bool(caplog.records) == (status == 500)


def test_a_throttle_tells_when_to_come_back() -> None:
    assert from_exception(drf.Throttled(wait=2.5)).headers == {"Retry-After": "3"}
    assert from_exception(drf.Throttled()).headers == {}


@pytest.mark.parametrize(
    ("detail", "message", "param"),
    [
        ({"messages": [{}, {}, {"role": ["Unknown role."]}]}, "Unknown role.", "messages[2].role"),
        ({"messages": {"2": {"role": ["Unknown role."]}}}, "Unknown role.", "messages[2].role"),
        ({"tools": {0: {"function": {"name": ["Required."]}}}}, "Required.", "tools[0].function.name"),
        ({"non_field_errors": ["Both."]}, "Both.", None),
        ({"tool_choice": {"non_field_errors": ["Neither."]}}, "Neither.", "tool_choice"),
        ({"stop": [["Not a string."]]}, "Not a string.", "stop[0]"),
        (["Plain."], "Plain.", None),
        ([], "The request is not valid.", None),
        ({"a": [{}]}, "The request is not valid.", "a"),
    ],
)
def test_the_first_fault_is_reported_with_its_path(detail: Any, message: str, param: str | None) -> None:
    assert first_fault(detail) == (message, param)


details = st.recursive(
    st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(details)
def test_no_detail_breaks_the_envelope(detail: Any) -> None:
    error = from_exception(drf.ValidationError(detail))
    assert error.status == 400
    assert isinstance(error_body(error)["error"]["message"], str)


def test_an_unexpected_failure_is_only_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    def broken_inside(_environ: Any) -> PlainResponse:
        raise RuntimeError("what nobody expected")

    chain = at_each_path({"chat/completions": broken_inside})["/v1/chat/completions"]
    environ = {"PATH_INFO": "/v1/chat/completions", "REQUEST_METHOD": "POST", "SCRIPT_NAME": ""}
    setup_testing_defaults(environ)
    answered = b"".join(chain(environ, lambda *_: lambda _: None))
    assert orjson.loads(answered)["error"]["code"] == "internal_server_error"
    assert b"nobody expected" not in answered
    assert "in broken_inside" in caplog.text
    assert "RuntimeError: what nobody expected" in caplog.text
