"""An upstream's failures in the gateway's words: named, quoted, and free of secrets and addresses (decision 11)."""

import re
from urllib.parse import urlsplit

from catalogue.pricing import ContradictoryUsage
from catalogue.routes import Route
from gateway.errors import ApiError, ProviderTimeout, UpstreamFailed, UsageContradicted

from .deadlines import DeadlineExpired
from .dialects.base import UpstreamFault
from .dialects.http import Unreachable

GENERATION_HEADER = "X-Generation-Id"
QUOTE_LENGTH = 300
WITHOUT_WORDS = frozenset({401, 403})  # these messages carry fragments of the key
RATE_LIMITED = 429
OUT_OF_SERVICE = frozenset({502, 503, 529})
WORTH_A_RETRY = frozenset({408, 409, 425, 429})
_SECRETS = re.compile(
    r"\b(?:sk|pk|rk|key|api|token|bearer)(?:[-_ ]|\s*[=:]\s*)[\w.*…-]{6,}|\beyJ[\w.-]{10,}", re.IGNORECASE
)
_ADDRESSES = re.compile(
    r"\bhttps?://\S+|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\[[0-9a-f:]{3,}\](?::\d+)?", re.IGNORECASE
)


def refusal(fault: UpstreamFault | ContradictoryUsage, route: Route, *, record: str | None = None) -> ApiError:
    """What the client is told of a fault before anything was delivered; `record` is the id of the record it left."""
    provider = f"Provider {route.upstream.slug!r}"
    if isinstance(fault, ContradictoryUsage):
        return UsageContradicted(
            f"{provider} reported usage that contradicts itself: the cost is unresolvable.",
            headers=None if record is None else {GENERATION_HEADER: record},
        )
    if isinstance(fault, DeadlineExpired):
        return ProviderTimeout(f"{provider} {fault.message}. Nothing was delivered or billed.")
    reason = "primary_unavailable" if isinstance(fault, Unreachable) else _fallback_reason(fault.status)
    said = quoted(fault.message, route).rstrip(".")
    retry = fault.status is None or _is_worth_a_retry(fault.status)
    return UpstreamFailed(f"{provider} {said}.", retry=retry, fallback_reason=reason)


def refusal_of_status(status: int, words: str, route: Route) -> ApiError:
    """What the client is told of an answer that is no success. `words` are the upstream's own, if it had any."""
    provider = f"Provider {route.upstream.slug!r}"
    if status < 400:
        return UpstreamFailed(f"{provider} answered with a redirect (HTTP {status}), which is not followed.")
    said = "" if status in WITHOUT_WORDS or not words else f": {quoted(words, route)}"
    return UpstreamFailed(
        f"{provider} answered with HTTP {status}{said}",
        retry=_is_worth_a_retry(status),
        fallback_reason=_fallback_reason(status),
    )


def _is_worth_a_retry(status: int) -> bool:
    """Whether the same request may fare better later."""
    return status >= 500 or status in WORTH_A_RETRY


def _fallback_reason(status: int | None) -> str:
    if status == RATE_LIMITED:
        return "primary_rate_limited"
    return "primary_unavailable" if status in OUT_OF_SERVICE else "primary_error"


def quoted(words: str, route: Route) -> str:
    """An upstream's words on one line, trimmed, with credentials and addresses taken out."""
    text = " ".join(words.split())
    for private in (route.upstream.credential, urlsplit(route.base_url).netloc):
        if private:
            text = text.replace(private, "[…]")
    text = _ADDRESSES.sub("[…]", _SECRETS.sub("[…]", text))
    return text if len(text) <= QUOTE_LENGTH else text[:QUOTE_LENGTH] + "…"
