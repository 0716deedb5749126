"""What dialects share: headers, refusals, JSON that comes in, and counts of tokens."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from catalogue.pricing import ContradictoryUsage, Usage
from catalogue.routes import Upstream
from gateway.errors import InvalidRequest

from ..call import Call
from .base import MalformedReply, Reply

NO_HEADERS: Mapping[str, str] = {}

# Fields that would change price, place or provider behind the gateway's back.
REROUTING_FIELDS = (
    "inference_geo",
    "provider",
    "providers",
    "models",
    "route",
    "transforms",
    "plugins",
    "web_search_options",
    "fallbacks",
)
SURELY_SHALLOW = 200  # opening brackets: nothing can be nested deeper than their number
MOST_TOKENS = 10**8  # of one request; beyond it an upstream has miscounted, and a bill would be absurd


def headers_for(
    upstream: Upstream, *, default_header: str, default_scheme: str, own: Mapping[str, str] = NO_HEADERS
) -> dict[str, str]:
    """The headers of an upstream call: nothing of the client's, the dialect's own, the provider's extras (which may
    replace those), and the credential."""
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **own, **upstream.extra_headers}
    if upstream.credential is not None:
        header = upstream.auth_header or default_header
        scheme = upstream.auth_scheme if upstream.auth_header else default_scheme
        headers[header] = f"{scheme} {upstream.credential}" if scheme else upstream.credential
    return headers


def refuse_fields(call: Call, names: Iterable[str]) -> None:
    """Raises InvalidRequest for the first of these fields that the client sent."""
    for name in names:
        if name in call.body:
            raise InvalidRequest.of_field(name, "would change price, place or provider of a pinned request.")


def refuse_service_tier(call: Call, *, kept: Iterable[str]) -> None:
    """Raises InvalidRequest for a service tier with a price of its own; those `kept` have the published one."""
    if call.body.get("service_tier", "auto") not in kept:
        names = " or ".join(repr(name) for name in kept)
        raise InvalidRequest.of_field("service_tier", f"must be {names}: other tiers have other prices.")


def refuse_storage(call: Call) -> None:
    """Raises InvalidRequest where the client wants its answer kept by the provider."""
    if call.body.get("store") not in (None, False):
        raise InvalidRequest.of_field("store", "must be false: answers are not stored at a provider.")


def encoded(body: Mapping[str, Any]) -> bytes:
    """The body of an upstream call. Raises InvalidRequest where the client nests deeper than can be written (254)."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        raise InvalidRequest("The request body is nested too deeply.") from None


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises MalformedReply."""
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise MalformedReply("answered with something that is not JSON") from None
    if not isinstance(parsed, dict):
        raise MalformedReply("answered with JSON that is not an object")
    # What opens has to close again: in a short text, such as most chunks are, nothing needs to be counted.
    if len(data) > 2 * SURELY_SHALLOW and data.count(b"[") + data.count(b"{") > SURELY_SHALLOW:
        try:
            orjson.dumps(parsed)  # it reads deeper than it writes, and the answer has to be written
        except orjson.JSONEncodeError:
            raise MalformedReply("answered with JSON that is nested too deep") from None
    return parsed


def counted_reply(answer: dict[str, Any], usage: Any, count_usage: Callable[[Any], Usage | None]) -> Reply:
    """An answer with its usage counted. Raises ContradictoryUsage that carries both."""
    try:
        return Reply(answer, count_usage(usage), usage)
    except ContradictoryUsage as error:
        error.answer, error.reported = answer, usage
        raise


def optional_count(value: Any) -> int | None:
    """A token count that may be absent."""
    return None if value is None else count(value)


def count(value: Any) -> int:
    """A token count. Raises ContradictoryUsage for anything but a whole number of zero or more that can be true."""
    if type(value) is not int or not 0 <= value <= MOST_TOKENS:
        raise ContradictoryUsage(f"a token count of {value!r}")
    return value
