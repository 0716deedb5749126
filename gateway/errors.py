"""Every error that a client may receive: the table of docs/api.md#error-codes, one class a row.

ApiError (500 internal_server_error)
├── AuthenticationError 401
│   ├── MissingAuthorization · MissingKey · ApiKeyMalformed · ApiKeyNotRegistered · ApiKeyExpired
├── AccountSuspended 403
│   ├── AccountClosed
├── InvalidRequest 400
│   ├── InvalidAliasName 400 · InsufficientCredits 402 · MethodNotAllowed 405 · AliasExists 409 · RequestTooLarge 413
│   ├── InvalidAliasTarget 422 · AliasLimitReached 422 · UpgradeRequired 426 · TooManyRequests 429
│   ├── UpstreamRefused
├── KeyBudgetSpent 429
│   ├── TooManyAtOnce
├── NotFound 404
│   ├── AliasNotFound
├── ModelNotFound 404 (its type is a quirk that clients know)
├── ProviderError 503
│   ├── UnpricedRoute · UpstreamFailed · UsageContradicted
│   │   ├── ProviderRateLimited 429 · CostUnresolvable (in-stream)
├── ProviderUnavailable 503
│   ├── AllProvidersFailed · ModelUnavailable · ProviderNotConfigured · ProviderQuotaExhausted · ProviderTimeout 504
│   │   ├── AllProvidersRateLimited 429
├── ServiceUnavailable 503
│   ├── ReplicaGivesUp · WorkerBusy
└── StepFailed 500

Domain code raises these; only `gateway.edge.exception_handler` turns one into a body.
"""

import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from .stores.outages import AWAY, Outage

logger = logging.getLogger(__name__)

# What is known of the charge of a request that fails (`StepFailed`).
NOTHING_BILLED = "Nothing was billed."
BILLED_ONCE_AT_MOST = "What was delivered is billed once at most."
BUSY_SECONDS = 5  # after which what was refused by `WorkerBusy` may be tried again


class ApiError(Exception):
    """An error for clients. `retry` False adds `x-should-retry: false`, which SDKs honour."""

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
    """401: nobody knows who asks."""

    status, type, code, retry = 401, "authentication_error", "authentication_error", False


class MissingAuthorization(AuthenticationError):
    """No Authorization header."""

    message = "Missing Authorization header. Send `Authorization: Bearer <API_KEY>`."


class MissingKey(MissingAuthorization):
    """Neither that nor `x-api-key`."""

    message = "Missing Authorization header. Send `Authorization: Bearer <API_KEY>`, or `x-api-key: <API_KEY>`."


class ApiKeyMalformed(AuthenticationError):
    """No token of our form."""

    code = "api_key_malformed"
    message = "Malformed API key: expected `Bearer sk-gw-` followed by exactly 43 characters."


class ApiKeyNotRegistered(AuthenticationError):
    """No account's, or deleted."""

    code = "api_key_not_registered"
    message = "This API key is not registered to any account."


class ApiKeyExpired(AuthenticationError):
    """Past its expiry date."""

    code = "api_key_expired"
    message = "This API key has expired. Create a new one in the dashboard."


class AccountSuspended(ApiError):
    """403: staff have suspended the account; its keys and members may read, and no more."""

    status, type, code, retry = 403, "permission_error", "account_suspended", False
    message = "This account is suspended: requests and changes are refused. Ask the operator of this gateway."


class AccountClosed(AccountSuspended):
    """The same of an account that is closed for good."""

    message = "This account is closed for good: requests and changes are refused. Ask the operator of this gateway."


class InvalidRequest(ApiError):
    """400: a broken rule; `param` names the field."""

    status, type, code, retry = 400, "invalid_request_error", "invalid_request_error", False
    message = "The request is not valid."
    rule: str | None = None

    @classmethod
    def of_field(cls, path: str, rule: str) -> Self:
        """A field breaks a rule: `path` as in `messages[2].role`, `rule` as in "must be a string."."""
        error = cls(f"`{path}` {rule}", param=path)
        error.rule = rule
        return error

    def within(self, path: str) -> "InvalidRequest":
        """The same of a value that stands at `path`, in which it was found."""
        return self if self.rule is None else InvalidRequest.of_field(f"{path}{self.param or ''}", self.rule)


class InvalidAliasName(InvalidRequest):
    """An alias name outside the naming rule."""

    code = "invalid_alias_name"


class InsufficientCredits(InvalidRequest):
    """402: the balance is not above zero."""

    status, code = 402, "insufficient_credits"
    message = "Insufficient credits: the account's balance is not above zero. Add credit and try again."


class MethodNotAllowed(InvalidRequest):
    """405: another verb."""

    status, code = 405, "method_not_allowed"


class UpgradeRequired(InvalidRequest):
    """426: a WebSocket, where clients speak HTTP after this status alone."""

    status, code = 426, "upgrade_required"


class RequestTooLarge(InvalidRequest):
    """413: a body above GATEWAY_MAX_BODY_BYTES."""

    status, code = 413, "request_too_large"


class AliasExists(InvalidRequest):
    """409: the name is taken."""

    status, code, param = 409, "alias_exists", "name"


class InvalidAliasTarget(InvalidRequest):
    """422: no routable target; the message says why."""

    status, code, param = 422, "invalid_alias_target", "target"


class AliasLimitReached(InvalidRequest):
    """422: the account's aliases are full."""

    status, code, param = 422, "alias_limit_reached", "name"


class TooManyRequests(InvalidRequest):
    """429: an address' limit, with `Retry-After`."""

    status, code, retry = 429, "rate_limit_exceeded", True


class UpstreamRefused(InvalidRequest):
    """400: the upstream refuses what the request says, in its words and with its `code`."""

    fallback_reason = "primary_error"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.code = code or type(self).code


class KeyBudgetSpent(ApiError):
    """429: the key's minute, with `Retry-After`."""

    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class TooManyAtOnce(KeyBudgetSpent):
    """429: as many in flight as allowed, or paid for."""


class NotFound(ApiError):
    """404: no such path, record or model."""

    status, type, code, retry = 404, "not_found", "not_found", False
    message = "Not found."


class AliasNotFound(NotFound):
    """No such alias of the account."""

    code = "alias_not_found"


class ModelNotFound(ApiError):
    """404: a disabled model. Its `type` is a documented quirk."""

    status, type, code, retry = 404, "internal_server_error", "model_not_found", False
    param = "model"


class ProviderError(ApiError):
    """503: the route failed, or has no known price."""

    status, type, code = 503, "provider_error", "provider_error"


class UnpricedRoute(ProviderError):
    """A route without a price or exchange rate."""

    retry = False


class UpstreamFailed(ProviderError):
    """The upstream's failure, quoted without secrets."""

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
        self.fallback_reason = fallback_reason  # what failover would say of it


class ProviderRateLimited(UpstreamFailed):
    """429: the provider's limit, with its `Retry-After`."""

    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class UsageContradicted(ProviderError):
    """The upstream's usage contradicts itself; nothing is debited."""

    retry = False


class CostUnresolvable(UsageContradicted):
    """The same in an open stream."""

    code = "cost_unresolvable"


class ProviderUnavailable(ApiError):
    """503: the pinned region is not served."""

    status, type, code, retry = 503, "provider_unavailable", "provider_unavailable", False
    param: str | None = "model"


class ModelUnavailable(ProviderUnavailable):
    """The model is switched off for now."""

    code = "model_unavailable"


class ProviderNotConfigured(ProviderUnavailable):
    """The provider has no credential here."""

    code, param = "provider_not_configured", None


class ProviderQuotaExhausted(ProviderUnavailable):
    """The route's tokens of the UTC day are spent; `Retry-After` is midnight."""

    code = "provider_quota_exhausted"


class AllProvidersFailed(ProviderUnavailable):
    """Failover has tried every candidate."""

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
    """429: the same, by rate limits alone."""

    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class ProviderTimeout(ProviderUnavailable):
    """504: the named budget ran out undelivered."""

    status, code, param, retry = 504, "provider_timeout", None, True
    fallback_reason = "primary_timeout"


class ServiceUnavailable(ApiError):
    """503: no catalogue snapshot yet."""

    status, code = 503, "service_unavailable"
    param: str | None = "model"
    message = "The routing snapshot is not ready on this replica yet. Retry shortly."


class ReplicaGivesUp(ServiceUnavailable):
    """503: this replica stops, or cannot vouch for the bill."""

    param = None


class WorkerBusy(ServiceUnavailable):
    """503: as much of one kind of work as allowed."""

    param = None

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"Retry-After": str(BUSY_SECONDS)})


class StepFailed(ApiError):
    """500: ours broke. The client learns the step, and by `bill` of the charge."""

    def __init__(self, doing: str, bill: str = "") -> None:
        super().__init__(f"Internal error while {doing}. {bill}".rstrip())


class step:  # noqa: N801  # reads as a statement: `with step("settling the charge"):`
    """Turns an unexpected exception into a `StepFailed`."""

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


_outages: dict[str, Outage] = {}  # by what was being done


def log_failure(doing: str, error: Exception) -> None:
    """Logs an unexpected exception; a database that is away is one line."""
    if isinstance(error, AWAY):
        _outages.setdefault(doing, Outage(f"failing while {doing}", logger.error)).failed(error)
    else:
        logger.error("failed while %s", doing, exc_info=error)


def _codes(kind: type[ApiError]) -> frozenset[str | None]:
    return frozenset({kind.code}).union(*map(_codes, kind.__subclasses__()))


OWN_CODES = _codes(ApiError)  # those that clients know to be the gateway's
