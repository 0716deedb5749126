"""Reads upstreams' errors of any shape: the message, the status that is meant, the code, and the field at fault."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from gateway.fastpath.faults import UpstreamFault

from . import odd_json

# The upstream rejects the request for its content: another provider or another try would not help. 404 is not one of
# them: it means that the catalogue's name of the model is wrong, so another provider may serve the request.
REJECTED_STATUSES = frozenset({400, 413, 422})
# The message of such an error is not passed on: it may hold a fragment of the operator's key. (A 401 or 402 is a
# `Trouble`, whose message is never used.)
FORBIDDEN = 403
RATE_LIMITED = 429
CONTEXT_OVERFLOW = "context_length_exceeded"


class Trouble(StrEnum):
    """Names a trouble between the operator and a provider, which does not depend on the request."""

    EMPTY = "has no credit left in the operator's account"
    KEY = "does not accept the operator's key"
    LOCKED = "has locked the operator's account"


# What clients read instead of a trouble.
TROUBLE_WORDS = "refuses the gateway itself, not this request; the gateway's operator is told"
# The status with which a trouble is reported, whatever status the upstream sent. A bare 401 or 402 means a trouble
# too; a bare 403 does not.
STATUS_OF: Mapping[Trouble, int] = {Trouble.EMPTY: 402, Trouble.KEY: 401, Trouble.LOCKED: 403}
# Troubles by an error's code, type or reason, with any status; in lower case and without separators.
TROUBLES: Mapping[str, Trouble] = {
    **dict.fromkeys(
        (
            "arrearage",
            "billingerror",
            "billinghardlimitreached",
            "billinglimitreached",
            "billingnotactive",
            "exceededcurrentquotaerror",
            "insufficientbalance",
            "insufficientcredit",
            "insufficientcredits",
            "insufficientquota",
            "notenoughbalance",
            "paymentrequired",
        ),
        Trouble.EMPTY,
    ),
    **dict.fromkeys(
        (
            "apikeyexpired",
            "apikeyinvalid",
            "authenticationerror",
            "expiredapikey",
            "incorrectapikey",
            "incorrectapikeyerror",
            "invalidapikey",
            "invalidauthenticationerror",
            "unauthenticated",
        ),
        Trouble.KEY,
    ),
    **dict.fromkeys(
        (
            "accountdeactivated",
            "accountsuspended",
            "organizationdeactivated",
            "organizationdisabled",
            "organizationrestricted",
        ),
        Trouble.LOCKED,
    ),
}
# Troubles by an error's message, as Alibaba, Anthropic, DeepSeek, Fireworks, Google, Groq, Moonshot, OpenAI,
# OpenRouter, SiliconFlow, xAI and Zhipu send them with a status of 400, 403, 412 or 429.
_TROUBLE_WORDS = (
    (
        Trouble.LOCKED,
        r"(?:organization|account|project|team)\b(?: [^\s.,]+){0,2} (?:has been|is|was) (?:currently )?"
        r"(?:disabled|deactivated|suspended|restricted|blocked|terminated|closed)"
        r"|make sure your account is in good standing",
    ),
    (
        Trouble.EMPTY,
        r"(?:credit|account) balance is (?:too low|insufficient|not enough|negative)"
        r"|(?:insufficient|not enough) (?:account )?(?:balance|credits?|funds)\b"
        r"|(?:does ?n[o']t|doesn.t) have (?:any|enough|sufficient) credits|requires more credits"
        r"|billing (?:hard |soft )?limit|due to insufficient balance|please recharge"
        r"|monthly spending limit|check your billing details",
    ),
    (
        Trouble.KEY,
        r"(?:api|subscription|access|x-api)[ -_]?(?:key|token)s? (?:is |was |has )?"
        r"(?:not valid|invalid|incorrect|expired|revoked|been (?:revoked|disabled))"
        r"|(?:invalid|incorrect|expired|revoked|unknown) (?:x-)?api[ -_]?(?:key|token)\b",
    ),
)
_TROUBLE = tuple((trouble, re.compile(words, re.IGNORECASE)) for trouble, words in _TROUBLE_WORDS)
_QUOTED = re.compile(r"'[^']{4,}'|\"[^\"]{4,}\"|`[^`]{4,}`")  # a value of the request, which may contain anything
# With status 429 this means a rate limit at Google and an empty account at OpenAI, which also sends a code.
_QUOTA = re.compile(r"exceeded your (?:current|monthly|daily) quota|check your plan", re.IGNORECASE)

# The members of an error that may hold another error, or the message.
WITHIN = ("error", "errors", "message", "detail", "msg", "error_msg")
# Some servers write such a phrase as the error, and the message in another member.
_PHRASES = frozenset(status.phrase for status in HTTPStatus)
# The status for an error's code or type, if the error holds no number. `model_not_found` comes first, since it is not
# the request's fault although its type is `invalid_request_error`.
STATUSES = {
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    CONTEXT_OVERFLOW: 400,
    "invalid_request_error": 400,
    "BadRequestError": 400,
    "INVALID_ARGUMENT": 400,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
OVERFLOW_NAMES = frozenset({CONTEXT_OVERFLOW, "exceed_context_size_error", "model_context_window_exceeded"})
# The messages of Anthropic, Bedrock, Cohere, Google, Groq, llama.cpp, LM Studio, MiniMax, Mistral, Moonshot, OpenAI,
# OpenRouter, SGLang, TGI, vLLM and xAI. Messages about a model's output limit must not match.
_OVERFLOW = re.compile(
    r"(?:prompt|input|conversation) (?:is )?too long"
    r"|maximum (?:allowed )?(?:context|model|prompt|input|sequence) length"
    r"|context[ _](?:length|window|size|limit)s? (?:(?:is|was|has been) )?exceed"
    r"|(?:exceed(?:s|ed|ing)?|(?:long|larg|great)er than|too (?:large|long|big) for)(?: \S+){0,4} context"
    r"|context length of only"
    r"|token count[^.]{0,40} exceeds"
    r"|input tokens exceed"
    r"|exceeded model token limit"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input|conversation)"
    r"|inputs?`? (?:tokens \+ `?max_new_tokens|must have less than \d+ tokens)"
    r"|too many (?:input |prompt )?tokens(?! per)",
    re.IGNORECASE,
)
_MOST_WORDS = 4000  # characters of a message that are searched
_MOST_TROUBLE = 400  # characters searched for trouble: its messages are short, and a longer text may quote the request
# A field's path before the message about it, as in `tools.0.name: Field required`.
_PREFIX = re.compile(r"([A-Za-z_]\w*)(?:[.\[][\w.\]\[]*)?: ")


class MalformedReply(UpstreamFault):
    """Is raised for an answer or event that is not valid in its dialect."""


class UnreadableEmbedding(MalformedReply):
    """Is raised for a vector in an encoding that clients cannot ask for. The model would answer so again."""

    is_lasting = True


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Holds an upstream's error. `status` is the HTTP status, or the one that an error in a 200 answer stands for.

    `words` is the message, or empty. `code` and `param` are as the upstream wrote them; None means absent. An error
    about the operator's account has a `trouble` instead of `words`, and the status for that trouble.
    """

    words: str = ""
    status: int | None = None
    code: str | None = None
    param: str | None = None
    trouble: Trouble | None = None


class ReportedError(UpstreamFault):
    """Is raised for an error that an upstream sent in the place of an answer or within a stream."""

    def __init__(self, report: ErrorReport) -> None:
        message = f"reported an error: {report.words}" if report.words else "answered with an error"
        if report.trouble is not None:
            message = TROUBLE_WORDS
        super().__init__(message, status=report.status)
        self.report = report


def report_of_body(status: int, body: bytes) -> ErrorReport:
    """Reads the error in the body of an unsuccessful answer.

    The body of a rejection may be plain text, as from servers in Rust. Plain text with another status describes the
    server's own failure, which clients do not get to see.
    """
    try:
        parsed = odd_json.loads(body)
    except ValueError:
        parsed = _plain_text(body) if status in REJECTED_STATUSES else None
    return report_of(parsed, status=status)


def _plain_text(body: bytes) -> str:
    """Returns the text of a body that is not JSON; an empty one for HTML, truncated JSON and binary data."""
    try:
        text = body.decode().strip()
    except UnicodeDecodeError:
        return ""
    return "" if text.startswith(("<", "{", "[")) or "\0" in text else text


def report_of(parsed: Any, *, status: int | None = None) -> ErrorReport:
    """Reads a parsed error. A context overflow gets the code CONTEXT_OVERFLOW, whatever the upstream calls it."""
    levels = list(_levels(parsed))
    words = levels.pop() if levels and isinstance(levels[-1], str) else ""
    named = [level for level in levels if isinstance(level, dict)]
    code = _first(named, "code")
    if trouble := _trouble(named, words, status):
        return ErrorReport(status=STATUS_OF[trouble], trouble=trouble)
    status = _status(named) if status is None else status
    if code == "model_not_found" and status in REJECTED_STATUSES:
        status = 404  # the operator's catalogue has the wrong name of the model, so the request is not at fault
    if status is None or status in REJECTED_STATUSES:
        names = OVERFLOW_NAMES.intersection(filter(None, (code, _first(named, "type"))))
        if names or _OVERFLOW.search(words[:_MOST_WORDS]):
            status, code = status or 400, CONTEXT_OVERFLOW
    if status == FORBIDDEN or _QUOTA.search(words[:_MOST_WORDS]):
        words = ""
    return ErrorReport(words, status, code, _param(named, words))


def _trouble(levels: list[dict[str, Any]], words: str, status: int | None) -> Trouble | None:
    """Returns the trouble that an error is about, by its code, type or reason, else by its message, else by its status.

    Returns None if it is not about the operator's account.
    """
    for level in levels:
        for name in (level.get("code"), level.get("type"), level.get("status"), *_reasons(level)):
            if isinstance(name, str) and (trouble := TROUBLES.get(re.sub(r"[-_. ]", "", name).lower())):
                return trouble
    said = _QUOTED.sub("", words[:_MOST_TROUBLE])
    if status != RATE_LIMITED and _QUOTA.search(said):
        return Trouble.EMPTY
    found = next((trouble for trouble, pattern in _TROUBLE if pattern.search(said)), None)
    return found or next((trouble for trouble in (Trouble.KEY, Trouble.EMPTY) if STATUS_OF[trouble] == status), None)


def _reasons(level: dict[str, Any]) -> Iterator[Any]:
    details = level.get("details")
    for each in details if isinstance(details, list) else ():
        if isinstance(each, dict):
            yield each.get("reason")


def _levels(parsed: Any) -> Iterator[Any]:
    """Yields the objects of an error from the outside in, then its message, for the many shapes in use.

    A relay may hold its provider's error as text, in its message or in another member (OpenRouter).
    """
    while True:
        if isinstance(parsed, str) and parsed.lstrip().startswith(("{", "[{")):
            parsed = _object_in(parsed)
        if isinstance(parsed, list) and parsed and (isinstance(parsed[0], dict) or all(map(_is_text, parsed))):
            parsed = parsed[0]
        if isinstance(parsed, dict | str):
            yield parsed
        if not isinstance(parsed, dict):
            return
        metadata = parsed.get("metadata")
        inner = [metadata.get("raw") if isinstance(metadata, dict) else None, *map(parsed.get, WITHIN)]
        inner = [value for value in inner if value and isinstance(value, dict | list | str)]
        telling = [value for value in inner if not (_is_text(value) and value in _PHRASES)]
        parsed = next(iter(telling or inner), None)


def _object_in(text: str) -> Any:
    try:
        return odd_json.loads(text.encode())
    except ValueError:
        return text


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _first(levels: list[dict[str, Any]], name: str) -> str | None:
    return next((level[name] for level in reversed(levels) if isinstance(level.get(name), str)), None)


def _status(levels: list[dict[str, Any]]) -> int | None:
    """Returns the status that an error in the place of an answer stands for: its own number, or by its code or type."""
    for level in reversed(levels):
        for name in ("code", "status", "status_code", "type"):
            value = level.get(name)
            if isinstance(value, str):
                value = int(value) if re.fullmatch(r"[45]\d\d", value) else STATUSES.get(value)
            if type(value) is int and 400 <= value < 600:
                return value
    return None


def _param(levels: list[dict[str, Any]], words: str) -> str | None:
    """Returns the field at fault: from `param`, from a location (`loc`), or from the path at the message's start.

    Of the latter only the first segment is used, since the upstream's messages may be numbered unlike the client's.
    """
    if (param := _first(levels, "param")) is not None:
        return param
    located: list[Any] = next((level["loc"] for level in reversed(levels) if isinstance(level.get("loc"), list)), [])
    path = [str(part) for part in located if part != "body"]
    if path:
        return ".".join(path)
    prefix = _PREFIX.match(words)
    return prefix[1] if prefix else None
