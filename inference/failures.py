"""Turns an upstream's failures and rejections into the gateway's errors, quoted without secrets and addresses.

If the upstream rejects the request's content (`REJECTED_STATUSES`), the client gets UpstreamRejected. If it refuses the
operator's key or account (`ErrorReport.trouble`), the client gets UpstreamFailed without details. A 401 or 403 comes
here only after inference/serving.py has tried the provider's second key, if it has one.
"""

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from catalogue.pricing import ContradictoryUsage
from catalogue.routing import health, route_failures, troubles
from catalogue.routing.routes import Route
from gateway.errors import (
    OWN_CODES,
    ApiError,
    ProviderRateLimited,
    ProviderTimeout,
    UpstreamFailed,
    UpstreamRejected,
    UsageContradicted,
)
from gateway.fastpath.faults import DeadlineExpired, Unreachable, UpstreamFault
from gateway.redaction import quoted

from .admission import AdmittedRequest
from .call import Call
from .dialects.errors import RATE_LIMITED, REJECTED_STATUSES, TROUBLE_WORDS, ErrorReport, ReportedError, Trouble

GENERATION_HEADER = "X-Generation-Id"
OUT_OF_SERVICE = frozenset({502, 503, 529})
WORTH_A_RETRY = frozenset({408, 409, 425, 429})
LONGEST_RETRY_AFTER = 120  # seconds: above it some clients give up, while others sleep for as long as it says
PLAIN_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}")
# Codes about the operator's account at the provider, which clients would take for codes about their own account.
OF_THE_ACCOUNT = re.compile(
    r"(?:^|_)(?:(?:api_?)?keys?|accounts?|auth\w*|billing|credits?|balance|payment|permission|forbidden|quota|organization"
    r"|project|rate_limit\w*|unauthorized|access)(?:_|$)"
)
FIELD_PATH = re.compile(r"([A-Za-z_]\w{0,63})([.\[][\w.\[\]-]{0,190})?")
# The upstream's name of a field, and the names that the client may have used. The first that the client sent counts.
CLIENTS_NAMES = {
    "max_tokens": ("max_completion_tokens", "max_tokens"),
    "max_completion_tokens": ("max_completion_tokens", "max_tokens"),
    "stop_sequences": ("stop_sequences", "stop"),
    "system": ("system", "messages"),
    "messages": ("messages", "prompt"),
    "prompt": ("prompt", "messages"),
    "metadata": ("metadata", "user"),
    "tool_choice": ("tool_choice", "parallel_tool_calls"),
    "reasoning_effort": ("reasoning_effort", "reasoning"),
    "thinking": ("thinking", "reasoning_effort", "reasoning"),
    "output_config": ("output_config", "response_format", "reasoning_effort", "reasoning"),
}


def error_of_fault(
    fault: UpstreamFault | ContradictoryUsage, admitted: AdmittedRequest, *, record: str | None = None
) -> ApiError:
    """Returns the error for a fault before anything was delivered.

    `record` is the id of the generation, if one was recorded.
    """
    route = admitted.route
    provider = f"Provider {route.upstream.slug!r}"
    if isinstance(fault, ContradictoryUsage):
        return UsageContradicted(
            f"{provider} reported usage that contradicts itself: the cost is unresolvable.",
            headers=None if record is None else {GENERATION_HEADER: record},
        )
    if isinstance(fault, DeadlineExpired):
        return ProviderTimeout(f"{provider} {fault.message}. Nothing was delivered or billed.")
    if isinstance(fault, ReportedError) and fault.status in REJECTED_STATUSES:
        return _rejected(fault.report, admitted)
    return broken(fault, admitted)


def noted_failure(fault: UpstreamFault | ContradictoryUsage, admitted: AdmittedRequest) -> ApiError:
    """Returns the error for a fault like `error_of_fault`, and notes the failure in the provider's health."""
    error, status = error_of_fault(fault, admitted), getattr(fault, "status", None)
    note_in_health(admitted.route, error, status, fault.report.trouble if isinstance(fault, ReportedError) else None)
    return error


def note_in_health(route: Route, error: ApiError, status: int | None, trouble: Trouble | None) -> None:
    """Notes a failure in the provider's health, where staff see the trouble that clients are not told about.

    `status` is None if the upstream did not answer with one.
    """
    words = error.message
    if trouble is not None:
        troubles.note(route.upstream.slug, trouble)
        words = f"Provider {route.upstream.slug!r} {trouble}."
    is_failure = health.is_failure(status)
    health.note(route.upstream.slug, failed=is_failure, words=words)
    if is_failure:
        route_failures.note(route)


def broken(fault: UpstreamFault, admitted: AdmittedRequest, *, bill: str = "") -> UpstreamFailed:
    """Returns the error for a fault that the request did not cause. `bill` is a sentence on what is billed."""
    reason = "primary_unavailable" if isinstance(fault, Unreachable) else _fallback_reason(fault.status)
    message = f"{fault_sentence(fault, admitted.route)} {bill}".rstrip()
    retry = not fault.is_lasting and _is_worth_a_retry(fault.status)
    return _kind(fault.status, admitted)(message, retry=retry, fallback_reason=reason)


def fault_sentence(fault: UpstreamFault, route: Route) -> str:
    """Describes a fault in one sentence."""
    return f"Provider {route.upstream.slug!r} {_quoted(fault.message, route).rstrip('.')}."


def error_of_status(report: ErrorReport, admitted: AdmittedRequest, *, retry_after: str) -> ApiError:
    """Returns the error for an unsuccessful answer. `retry_after` is its `Retry-After` header, or empty."""
    route, status = admitted.route, report.status or 0
    provider = f"Provider {route.upstream.slug!r}"
    if status < 400:
        return UpstreamFailed(f"{provider} answered with a redirect (HTTP {status}), which is not followed.")
    if status in REJECTED_STATUSES:
        return _rejected(report, admitted)
    if report.trouble is not None:
        return UpstreamFailed(f"{provider} {TROUBLE_WORDS}.", retry=False, fallback_reason=_fallback_reason(status))
    words = _quoted(report.words, route)
    quote = f": {words}" if words else ""
    retry = _is_worth_a_retry(status)
    return _kind(status, admitted)(
        f"{provider} answered with HTTP {status}{quote}",
        retry=retry,
        fallback_reason=_fallback_reason(status),
        headers=_retry_after(retry_after) if retry else None,
    )


def _rejected(report: ErrorReport, admitted: AdmittedRequest) -> UpstreamRejected:
    """Returns the error for a request that the upstream rejects for its content."""
    words = _quoted(report.words, admitted.route)
    quote = f": {words}" if words else f" (HTTP {report.status})."
    return UpstreamRejected(
        f"Provider {admitted.route.upstream.slug!r} rejected the request{quote}",
        code=_code(_quoted(report.code or "", admitted.route)),
        param=_param(_quoted(report.param or "", admitted.route), admitted.call),
    )


def _quoted(words: str, route: Route) -> str:
    credentials = filter(None, (route.upstream.credential, route.upstream.next_credential))
    return quoted(words, credentials, route.base_url)


def _code(code: str) -> str | None:
    """Returns the upstream's code if it is a plain word about the request."""
    speaks = PLAIN_WORD.fullmatch(code) and code not in OWN_CODES and not OF_THE_ACCOUNT.search(code)
    return code if speaks else None


def _param(path: str, call: Call) -> str | None:
    """Returns the path of the field in question, if the client sent it.

    If the client uses another name for it than the upstream, only that name is returned: the path within may differ.
    """
    match = FIELD_PATH.fullmatch(path)
    if match is None:
        return None
    name, within = match[1], match[2] or ""
    own = next((own for own in CLIENTS_NAMES.get(name, (name,)) if own in call.sent_fields), None)
    return name + within if own == name else own


def _retry_after(header: str) -> dict[str, str]:
    """Converts the header, which holds seconds or a date, to whole seconds that every client accepts."""
    try:
        if header[:1].isdigit():
            seconds = float(header)
        else:
            moment = parsedate_to_datetime(header)
            seconds = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return {}
    if not math.isfinite(seconds):
        return {}
    return {"Retry-After": str(min(max(math.ceil(seconds), 1), LONGEST_RETRY_AFTER))}


def _kind(status: int | None, admitted: AdmittedRequest) -> type[UpstreamFailed]:
    return ProviderRateLimited if status == RATE_LIMITED and admitted.form.tells_rate_limits else UpstreamFailed


def _is_worth_a_retry(status: int | None) -> bool:
    return status is None or status >= 500 or status in WORTH_A_RETRY


def _fallback_reason(status: int | None) -> str:
    if status == RATE_LIMITED:
        return "primary_rate_limited"
    return "primary_unavailable" if status in OUT_OF_SERVICE else "primary_error"
