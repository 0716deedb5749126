"""What an upstream says in an error of any shape: its words, the status it means, its code, the field it names."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from gateway.fastpath.faults import UpstreamFault

from . import odd_json

# The request is refused for what it says. Another provider, or another try, would not mend it.
REFUSED = frozenset({400, 413, 422})
# Its message may carry a fragment of the operator's key. (401 and 402 are trouble, which has no words at all.)
FORBIDDEN = 403
RATE_LIMITED = 429
CONTEXT_OVERFLOW = "context_length_exceeded"


class Trouble(StrEnum):
    """Names the trouble that the operator has with a provider: no request causes it, and none can mend it."""

    EMPTY = "has no credit left in the operator's account"
    KEY = "does not accept the operator's key"
    LOCKED = "has locked the operator's account"


REFUSES_THE_GATEWAY = "refuses the gateway itself, not this request; the gateway's operator is told"
STATUS_OF: Mapping[Trouble, int] = {Trouble.EMPTY: 402, Trouble.KEY: 401, Trouble.LOCKED: 403}
# Its names in an error's code, type or reason, which come with any status; in lower case and without separators.
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
# Its words, as Alibaba, Anthropic, DeepSeek, Fireworks, Google, Groq, Moonshot, OpenAI, OpenRouter, SiliconFlow, xAI
# and Zhipu write them with a status of 400, 403, 412 or 429.
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
_QUOTED = re.compile(r"'[^']{4,}'|\"[^\"]{4,}\"|`[^`]{4,}`")  # a value of the request, which may say anything
# With 429 it is a rate limit to Google and an empty account to OpenAI, which has a code for that.
_QUOTA = re.compile(r"exceeded your (?:current|monthly|daily) quota|check your plan", re.IGNORECASE)

# The members of an error that hold another one, or its words.
WITHIN = ("error", "errors", "message", "detail", "msg", "error_msg")
# What some servers write as the error, with its words in another member.
_PHRASES = frozenset(status.phrase for status in HTTPStatus)
# The status that goes with an error's code or type, where no number is given. The first word is not of the request,
# although it comes as an `invalid_request_error`.
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
# As Anthropic, Bedrock, Cohere, Google, Groq, llama.cpp, LM Studio, MiniMax, Mistral, Moonshot, OpenAI, OpenRouter,
# SGLang, TGI, vLLM and xAI say it. A model's limit on its output is another matter.
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
_MOST_WORDS = 4000  # characters that are searched
_MOST_TROUBLE = 400  # and those for trouble, which is told in a sentence or two: a longer text may be the request's own
# A field's path before the words about it, as in `tools.0.name: Field required`.
_PREFIX = re.compile(r"([A-Za-z_]\w*)(?:[.\[][\w.\]\[]*)?: ")


class MalformedReply(UpstreamFault):
    """Bytes that are not what the dialect promises."""


class UnreadableEmbedding(MalformedReply):
    """A vector in another encoding than a client may ask for: what such a model always answers."""

    is_lasting = True


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """An upstream's error. `status` is the answer's own, or what an error in an answer's place means.

    `code` and `param` are as the upstream wrote them. None is absent; `words` are empty where there are none. An error
    that speaks of the operator's account has its `trouble` in place of its words, and the status that this means.
    """

    words: str = ""
    status: int | None = None
    code: str | None = None
    param: str | None = None
    trouble: Trouble | None = None


class ReportedError(UpstreamFault):
    """An error in an answer's place."""

    def __init__(self, report: ErrorReport) -> None:
        message = f"reported an error: {report.words}" if report.words else "answered with an error"
        if report.trouble is not None:
            message = REFUSES_THE_GATEWAY
        super().__init__(message, status=report.status)
        self.report = report


def report_of_body(status: int, body: bytes) -> ErrorReport:
    """The report in the body of an answer with this status. A refusal may be words alone, as of servers in Rust; what
    fails describes itself, which is not for clients."""
    try:
        parsed = odd_json.loads(body)
    except ValueError:
        parsed = _plain_text(body) if status in REFUSED else None
    return report_of(parsed, status=status)


def _plain_text(body: bytes) -> str:
    """The text of a body that is no JSON; nothing of a page, of JSON that was cut, or of bytes that are no text."""
    try:
        text = body.decode().strip()
    except UnicodeDecodeError:
        return ""
    return "" if text.startswith(("<", "{", "[")) or "\0" in text else text


def report_of(parsed: Any, *, status: int | None = None) -> ErrorReport:
    """The report in a parsed error. A context overflow has its code whatever name, or words alone, the upstream has."""
    levels = list(_levels(parsed))
    words = levels.pop() if levels and isinstance(levels[-1], str) else ""
    named = [level for level in levels if isinstance(level, dict)]
    code = _first(named, "code")
    if trouble := _trouble(named, words, status):
        return ErrorReport(status=STATUS_OF[trouble], trouble=trouble)
    status = _status(named) if status is None else status
    if code == "model_not_found" and status in REFUSED:
        status = 404  # the catalogue's name of the model is the operator's
    if status is None or status in REFUSED:
        names = OVERFLOW_NAMES.intersection(filter(None, (code, _first(named, "type"))))
        if names or _OVERFLOW.search(words[:_MOST_WORDS]):
            status, code = status or 400, CONTEXT_OVERFLOW
    if status == FORBIDDEN or _QUOTA.search(words[:_MOST_WORDS]):
        words = ""
    return ErrorReport(words, status, code, _param(named, words))


def _trouble(levels: list[dict[str, Any]], words: str, status: int | None) -> Trouble | None:
    """Tells by an error's names, or else by its words, which trouble it is about; None if it is about the request."""
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
    """Yields the reasons that Google's errors have in their details."""
    details = level.get("details")
    for each in details if isinstance(details, list) else ():
        if isinstance(each, dict):
            yield each.get("reason")


def _levels(parsed: Any) -> Iterator[Any]:
    """An error's objects from the outside in, and its message last, of the many shapes in use.

    A relay writes the error of the provider behind it as text, in its message or beside it (OpenRouter).
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
    """The JSON that a text is, or the text."""
    try:
        return odd_json.loads(text.encode())
    except ValueError:
        return text


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _first(levels: list[dict[str, Any]], name: str) -> str | None:
    """The innermost text of this name."""
    return next((level[name] for level in reversed(levels) if isinstance(level.get(name), str)), None)


def _status(levels: list[dict[str, Any]]) -> int | None:
    """The status that an error in an answer's place means: a number that it gives, else that of its code or type."""
    for level in reversed(levels):
        for name in ("code", "status", "status_code", "type"):
            value = level.get(name)
            if isinstance(value, str):
                value = int(value) if re.fullmatch(r"[45]\d\d", value) else STATUSES.get(value)
            if type(value) is int and 400 <= value < 600:
                return value
    return None


def _param(levels: list[dict[str, Any]], words: str) -> str | None:
    """The field in question: named as such, as a location within the body, or before the words.

    Of the last only the first segment: the upstream's own messages may be numbered otherwise than the client's.
    """
    if (param := _first(levels, "param")) is not None:
        return param
    located: list[Any] = next((level["loc"] for level in reversed(levels) if isinstance(level.get("loc"), list)), [])
    path = [str(part) for part in located if part != "body"]
    if path:
        return ".".join(path)
    prefix = _PREFIX.match(words)
    return prefix[1] if prefix else None
