"""Defines every error that a client may receive: one class for each row of docs/api.md#error-codes.

ApiError (500 internal_server_error)
├── AuthenticationError 401
│   ├── MissingAuthorization · MissingKey · ApiKeyMalformed · ApiKeyNotRegistered · ApiKeyExpired · ApiKeyDisabled
├── KeyKindNotAllowed 403
├── AccountSuspended 403
│   ├── AccountClosed
├── PolicyDenied 403
├── InvalidRequest 400
│   ├── InvalidAliasName 400 · InsufficientCredits 402 · MethodNotAllowed 405 · AliasExists 409 · KeyExists 409
│   ├── LastOwnerStays 409 · AccountExists 409 · ReferenceConflict 409
│   │   ├── BudgetExceeded (below InsufficientCredits)
│   ├── MaxCostExceeded 400
│   ├── IdempotencyInProgress 409 · IdempotencyReplayed 409 · IdempotencyKeyReused 409
│   ├── RequestTooLarge 413 · InvalidAliasTarget 422 · AliasLimitReached 422 · UpgradeRequired 426 · TooManyRequests 429
│   ├── UpstreamRejected
├── KeyLimitReached 429
│   ├── TooManyInFlight
├── NotFound 404
│   ├── AliasNotFound · ReceiptNotReady
├── ModelDisabled 404 (its type is a quirk that clients know)
├── ProviderError 503
│   ├── UnpricedRoute · UpstreamFailed · UsageContradicted
│   │   ├── ProviderRateLimited 429 · CostUnresolvable (in-stream)
├── ProviderUnavailable 503
│   ├── AllProvidersFailed · ModelUnavailable · ProviderNotConfigured · ProviderQuotaExhausted · ProviderTimeout 504
│   │   ├── AllProvidersRateLimited 429
├── ServiceUnavailable 503
│   ├── ReplicaStopping · WorkerBusy
└── StepFailed 500

Domain code raises these; only `gateway.edge.exception_handler` turns one into a body.

A new code also needs its words in `dashboard/parts/advice.yaml`, and its place in `reference/openapi.yaml`.
"""

import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from django.conf import settings

from .db.outages import AWAY, Outage

logger = logging.getLogger(__name__)

# The sentence about the charge in a `StepFailed`.
NOTHING_BILLED = "Nothing was billed."
BILLED_ONCE_AT_MOST = "What was delivered is billed once at most."
BUSY_SECONDS = 5  # the Retry-After of `WorkerBusy`


class ApiError(Exception):
    """Is raised for an error that the client sees. `retry = False` adds `x-should-retry: false`, which SDKs honour."""

    status = 500
    type = "internal_server_error"
    code: str | None = "internal_server_error"
    message = "The request failed on our side."
    param: str | None = None
    retry = True

    def __init__(
        self,
        message: str | None = None,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        providers_attempted: Sequence[str] | None = None,
        last_error: str | None = None,
    ) -> None:
        self.message = message or type(self).message
        self.param = param or type(self).param
        self.headers = dict(headers or {})
        self.providers_attempted = providers_attempted
        self.last_error = last_error
        super().__init__(self.message)


class AuthenticationError(ApiError):
    """401: the request carries no valid API key."""

    status, type, code, retry = 401, "authentication_error", "authentication_error", False


class MissingAuthorization(AuthenticationError):
    """The request has no Authorization header."""

    message = "Missing Authorization header. Send `Authorization: Bearer <API_KEY>`."


class MissingKey(MissingAuthorization):
    """The request has neither an Authorization nor an `x-api-key` header."""

    message = "Missing Authorization header. Send `Authorization: Bearer <API_KEY>`, or `x-api-key: <API_KEY>`."


class ApiKeyMalformed(AuthenticationError):
    """The token does not have the form of our keys."""

    code = "api_key_malformed"
    message = "Invalid API key format. Expected `Authorization: Bearer sk-gw-…`, with 43 characters after the prefix."


class ApiKeyNotRegistered(AuthenticationError):
    """The key belongs to no account, or it was deleted."""

    code = "api_key_not_registered"
    message = "Invalid API key: it is unknown or was deleted."


class ApiKeyExpired(AuthenticationError):
    """The key's expiry date has passed."""

    code = "api_key_expired"
    message = "This API key has expired. Create a new one in the dashboard."


class ApiKeyDisabled(AuthenticationError):
    """The key is disabled until an owner enables it again."""

    code = "api_key_disabled"
    message = "This API key is disabled. An owner of its account can enable it again."


class KeyKindNotAllowed(ApiError):
    """403: the endpoint takes keys of another kind."""

    status, type, code, retry = 403, "permission_error", "key_kind_not_allowed", False


class AccountSuspended(ApiError):
    """403: staff have suspended the account; its keys and members may only read."""

    status, type, code, retry = 403, "permission_error", "account_suspended", False
    message = "This account is suspended: requests and changes are refused. Ask the operator of this gateway."


class AccountClosed(AccountSuspended):
    """403: the account is closed for good."""

    message = "This account is closed for good: requests and changes are refused. Ask the operator of this gateway."


class PolicyDenied(ApiError):
    """403: a policy does not allow the route; the message names the rule and whose it is."""

    status, type, code, retry = 403, "permission_error", "policy_denied", False
    param = "model"


class InvalidRequest(ApiError):
    """400: the request breaks a rule; `param` names the field."""

    status, type, code, retry = 400, "invalid_request_error", "invalid_request_error", False
    message = "The request is not valid."
    rule: str | None = None

    @classmethod
    def of_field(cls, path: str, rule: str) -> Self:
        """Returns the error for a field: `path` as in `messages[2].role`, `rule` as in "must be a string."."""
        error = cls(f"`{path}` {rule}", param=path)
        error.rule = rule
        return error

    def within(self, path: str) -> "InvalidRequest":
        """Returns this error with `path` in front of its own path, for a value that was checked out of its context."""
        return self if self.rule is None else InvalidRequest.of_field(f"{path}{self.param or ''}", self.rule)


class MaxCostExceeded(InvalidRequest):
    """400: the request could cost more than a policy or its own `max_cost` allows; the message has both figures."""


class InvalidAliasName(InvalidRequest):
    """The alias name breaks the naming rule."""

    code = "invalid_alias_name"


class InsufficientCredits(InvalidRequest):
    """402: the balance is not above zero."""

    status, code = 402, "insufficient_credits"

    def __init__(self, message: str | None = None, *, headers: Mapping[str, str] | None = None) -> None:
        usual = f"Insufficient credits: your balance is used up. Top up at {settings.PUBLIC_URL}/credit."
        super().__init__(message or usual, headers=headers)


class BudgetExceeded(InsufficientCredits):
    """402: a budget of the key, one of its tags or its account is spent; the message names it and when it renews."""

    code = "budget_exceeded"


class MethodNotAllowed(InvalidRequest):
    """405: the path does not take this HTTP method."""

    status, code = 405, "method_not_allowed"


class UpgradeRequired(InvalidRequest):
    """426: the client asks for a WebSocket. This is the only status after which such clients fall back to HTTP."""

    status, code = 426, "upgrade_required"


class RequestTooLarge(InvalidRequest):
    """413: the body is larger than GATEWAY_MAX_BODY_BYTES."""

    status, code = 413, "request_too_large"


class AliasExists(InvalidRequest):
    """409: the name is taken."""

    status, code, param = 409, "alias_exists", "name"


class LastOwnerStays(InvalidRequest):
    """409: the account would be left without an owner."""

    status, code = 409, "last_owner"
    message = "An account needs at least one owner. Make another member an owner first."


class KeyExists(InvalidRequest):
    """409: the account has a key with this name."""

    status, code, param = 409, "key_exists", "name"


class AccountExists(InvalidRequest):
    """409: there is an account with this name."""

    status, code, param = 409, "account_exists", "name"


class ReferenceConflict(InvalidRequest):
    """409: the reference was booked before with another amount."""

    status, code, param = 409, "reference_conflict", "reference"


class IdempotencyInProgress(InvalidRequest):
    """409: the first request with this `Idempotency-Key` still runs; has `Retry-After`."""

    status, code, retry = 409, "idempotency_in_progress", True
    message = "The first request with this Idempotency-Key is still running. Try again in 1 second."


class IdempotencyReplayed(InvalidRequest):
    """409: the first request with this `Idempotency-Key` was served and billed; `X-Generation-Id` names it."""

    status, code = 409, "idempotency_replayed"


class IdempotencyKeyReused(InvalidRequest):
    """409: the `Idempotency-Key` was sent with another body before."""

    status, code = 409, "idempotency_key_reused"
    message = "This Idempotency-Key was sent with another body within 24 hours. Send a new key with a new request."


class InvalidAliasTarget(InvalidRequest):
    """422: the target cannot be routed; the message says why."""

    status, code, param = 422, "invalid_alias_target", "target"


class AliasLimitReached(InvalidRequest):
    """422: the account has as many aliases as it may."""

    status, code, param = 422, "alias_limit_reached", "name"


class TooManyRequests(InvalidRequest):
    """429: the client's address has reached its limit; has `Retry-After`."""

    status, code, retry = 429, "rate_limit_exceeded", True


class UpstreamRejected(InvalidRequest):
    """400: the upstream rejects the request for its content; quotes its message and `code`."""

    fallback_reason = "primary_error"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.code = code or type(self).code


class KeyLimitReached(ApiError):
    """429: the key has reached its limit of requests or tokens per minute; has `Retry-After`."""

    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class TooManyInFlight(KeyLimitReached):
    """429: the account has as many requests in flight as it may, or as its balance covers."""


class NotFound(ApiError):
    """404: the path, record or model does not exist."""

    status, type, code, retry = 404, "not_found", "not_found", False
    message = "Not found."


class AliasNotFound(NotFound):
    """404: the account has no such alias."""

    code = "alias_not_found"


class ReceiptNotReady(NotFound):
    """404: the log does not have the generation's ledger entry yet; has `Retry-After`."""

    code, retry = "receipt_not_ready", True
    message = "The transparency log does not have this generation's ledger entry yet. Try again in a few seconds."


class ModelDisabled(ApiError):
    """404: the model is disabled. One that is not offered is NotFound. The `type` is a documented quirk."""

    status, type, code, retry = 404, "internal_server_error", "model_not_found", False
    param = "model"


class ProviderError(ApiError):
    """503: the route failed, or its price is unknown."""

    status, type, code = 503, "provider_error", "provider_error"


class UnpricedRoute(ProviderError):
    """503: the route has no price or no exchange rate."""

    retry = False


class UpstreamFailed(ProviderError):
    """503: the upstream failed; its message is quoted without secrets."""

    def __init__(
        self,
        message: str,
        *,
        retry: bool = True,
        fallback_reason: str = "primary_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, headers=headers)
        self.retry = retry
        self.fallback_reason = fallback_reason  # the reason that a failover would record


class ProviderRateLimited(UpstreamFailed):
    """429: the provider limits our requests; passes on its `Retry-After`."""

    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class UsageContradicted(ProviderError):
    """503: the upstream's usage contradicts itself; nothing is debited."""

    retry = False


class CostUnresolvable(UsageContradicted):
    """The usage contradicts itself in a stream that has begun: sent as an event, nothing is debited."""

    code = "cost_unresolvable"


class ProviderUnavailable(ApiError):
    """503: the model is not served in the region that the client pinned."""

    status, type, code, retry = 503, "provider_unavailable", "provider_unavailable", False
    param: str | None = "model"


class ModelUnavailable(ProviderUnavailable):
    """503: the model is switched off for now."""

    code = "model_unavailable"


class ProviderNotConfigured(ProviderUnavailable):
    """503: this gateway has no credential of the provider."""

    code, param = "provider_not_configured", None


class ProviderQuotaExhausted(ProviderUnavailable):
    """503: the route's tokens of this UTC day are used up; `Retry-After` points to midnight."""

    code = "provider_quota_exhausted"


class AllProvidersFailed(ProviderUnavailable):
    """503: failover has tried every candidate."""

    param = None

    def __init__(
        self,
        last_error: str,
        *,
        retry: bool,
        providers_attempted: Sequence[str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        message = f"All providers failed. Last error: {last_error}"
        super().__init__(message, headers=headers, providers_attempted=providers_attempted, last_error=last_error)
        self.retry = retry


class AllProvidersRateLimited(AllProvidersFailed):
    """429: failover has tried every candidate, and each was rate limited."""

    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class ProviderTimeout(ProviderUnavailable):
    """504: the timeout that the message names expired before any output."""

    status, code, param, retry = 504, "provider_timeout", None, True
    fallback_reason = "primary_timeout"


class ServiceUnavailable(ApiError):
    """503: this worker has not loaded a catalogue snapshot yet."""

    status, code = 503, "service_unavailable"
    param: str | None = "model"
    message = "The server is starting. Nothing was billed; please retry."


class ReplicaStopping(ServiceUnavailable):
    """503: this replica is stopping, or it could not bill the request."""

    param = None


class WorkerBusy(ServiceUnavailable):
    """503: the worker is already busy with all the work of one kind that it accepts."""

    param = None

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"Retry-After": str(BUSY_SECONDS)})


class StepFailed(ApiError):
    """500: the gateway failed. The message names the step; `bill` is a sentence about the charge."""

    def __init__(self, doing: str, bill: str = "") -> None:
        super().__init__(f"Internal error while {doing}. {bill}".rstrip())


class step:  # noqa: N801  # reads as a statement: `with step("settling the charge"):`
    """Logs an unexpected exception within it, and raises `StepFailed` instead."""

    __slots__ = ("bill", "doing")

    def __init__(self, doing: str, bill: str = "") -> None:
        self.doing, self.bill = doing, bill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            if (outage := _outages.get(self.doing)) is not None:
                outage.worked()
        elif isinstance(error, Exception) and not isinstance(error, ApiError):
            log_failure(self.doing, error)
            raise StepFailed(self.doing, self.bill) from error


_outages: dict[str, Outage] = {}  # by step


def log_failure(doing: str, error: Exception) -> None:
    """Logs an unexpected exception with its traceback, or an outage of the database in one line."""
    if isinstance(error, AWAY):
        _outages.setdefault(doing, Outage(f"failing while {doing}", logger.error)).failed(error)
    else:
        logger.error("failed while %s", doing, exc_info=error)


def _codes(kind: type[ApiError]) -> frozenset[str | None]:
    return frozenset({kind.code}).union(*map(_codes, kind.__subclasses__()))


OWN_CODES = _codes(ApiError)  # an upstream's error must not carry one of these
