"""Quoting an upstream without its secrets and addresses, and with its ordinary words.

A secret has a known prefix, stands where one is named (`api_key=…`, `Bearer …`), or is a long mixture of letters and
digits. What is written like words or like a model's name stays.
"""

import base64
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from catalogue.routes import Route

QUOTE_LENGTH = 300
READ_LENGTH = 1200  # characters of an upstream's words that are looked at
REDACTED = "[…]"
SHORTEST_RUN = 20  # characters; below it letters and digits may mix in an ordinary name
SHORTEST_MIXTURE = 16  # of those, the ones in parts that are no words

# A word begins here, behind an escape of JSON or of a URL too.
_BEGIN = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_TAIL = r"[\w.*…-]"  # of a key, masked or not
_NAMES = (
    r"(?:(?:api|access|secret|private|auth|client|session|refresh|id|account|subscription)[-_ ]?(?:key|token|secret)"
    r"|secret|passw(?:or)?d|authorization|credentials?|signature|sig)"
)
_SECRETS = re.compile(
    "|".join(
        (
            rf"{_BEGIN}sk-{_TAIL}{{6,}}",
            rf"{_BEGIN}(?:[prg]k|gsk|hf|xai|nvapi|pplx|r8|fw|csk|tgp|ghp|gho|ghs|glpat|xox[abps])[-_]"
            rf"(?={_TAIL}{{0,99}}(?:\d|[*…]|\.\.)|[\w-]{{0,99}}[a-z][A-Z]|[A-Za-z0-9]{{20}}){_TAIL}{{6,}}",
            rf"{_BEGIN}(?:AIza|ya29\.)[\w-]{{10,}}",
            rf"{_BEGIN}A[KS]IA[A-Z0-9]{{12,}}",
            rf"{_BEGIN}eyJ[\w-]{{8,}}(?:\.[\w-]*)*",
            rf"{_BEGIN}(?i:bearer|basic)(?:\s+|%20|:\s*)['\"`]?"
            r"(?=[^\s'\"`]*(?:\d|[*…]|(?-i:[a-z][A-Z])))[\w.~+/=*…-]{6,}",
            rf"{_BEGIN}(?i:token|key)(?:[-_=]|\s+|%20|:\s*)['\"`]?(?=\w*\d\w*\d)[\w.~+/=*…-]{{10,}}",
            rf"{_BEGIN}(?i:bearer)\s+[\w.~+/=-]{{16,}}",
            r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
            # Where one is named, it needs no digits: behind `=`, within quotes, or in a URL's query.
            rf"{_BEGIN}(?i:{_NAMES})['\"\\]*\s?=\s?['\"\\]*[^\s'\"&,;}}\\]{{4,}}",
            rf"(?i:{_NAMES})['\"\\]*\s?:\s?\\?['\"][^'\"\\]{{4,}}",
            rf"(?i:{_NAMES})['\"\\]*\s?:\s?(?=[^\s'\",]*\d)[^\s'\"&,;}}\\]{{6,}}",
            r"(?<=[?&])(?i:[\w-]*(?:key|token|secret|sig|signature|auth|code))=[^&\s'\"]+",
            # What others have masked.
            r"(?<!\w)\w{1,99}\*{3,}\w*|(?<!\*)\*{3,}\w+",
        )
    )
)
_ADDRESSES = re.compile(
    r"\b[a-z][a-z0-9+.-]*://\S+|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\[[0-9a-f:]{3,}\](?::\d+)?"
    r"|\blocalhost\b(?::\d+)?"
    r"|(?<![\w.-])(?:[\w-]{1,63}\.){1,9}(?:internal|local|localdomain|lan|intranet|corp|private|svc|consul|arpa)\b(?:\.[a-z0-9-]+)*(?::\d+)?"
    r"|(?<![\w.-])(?:[\w-]{1,63}\.){1,9}[a-z]{2,}:\d{2,5}\b",
    re.IGNORECASE,
)
_RUNS = re.compile(rf"[A-Za-z0-9+/_=-]{{{SHORTEST_RUN},}}")
_PARTS = re.compile(r"[A-Za-z0-9]+")
_WORDS = re.compile(r"[A-Z][a-z]{2,}|[a-z]{3,}")
_UNSPEAKABLE = re.compile(r"^[^aeiouy]+$|[^aeiouy]{5}|.{31}", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
# Ids that clients know, and have to find in a message about them.
_IDS = re.compile(r"(?:toolu|call|msg|req|resp|chatcmpl|cmpl|gen)[_-][A-Za-z0-9]+")


def quoted(words: str, route: Route) -> str:
    """An upstream's words on one line, trimmed, with credentials and addresses taken out."""
    text = " ".join(words[:READ_LENGTH].split())
    if len(words) > READ_LENGTH:
        text = text.rpartition(" ")[0]  # half a secret would not look like one
    for private in _private(route):
        text = text.replace(private, REDACTED)
    text = without_secrets(text)
    return text if len(text) <= QUOTE_LENGTH else text[:QUOTE_LENGTH] + "…"


def without_secrets(text: str) -> str:
    """The text with what looks like a secret or an internal address taken out."""
    return _SECRETS.sub(REDACTED, _RUNS.sub(_run, _ADDRESSES.sub(REDACTED, text)))


def _private(route: Route) -> Iterator[str]:
    """What is known to be private of a route, as it is and as it may be encoded."""
    if credential := route.upstream.credential:
        yield credential
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(credential.encode()).decode()
            yield from (encoded, encoded.rstrip("="))
    address = urlsplit(route.base_url)
    yield address.netloc
    if address.hostname and "." in address.hostname:
        yield address.hostname


def _run(found: re.Match[str]) -> str:
    """A long run of letters and digits, unless it reads like words."""
    run = found[0]
    mixed = sum(len(part) for part in _PARTS.findall(run) if _is_mixture(part))
    return run if mixed < SHORTEST_MIXTURE or _IDS.fullmatch(run) else REDACTED


def _is_mixture(part: str) -> bool:
    """Whether a part between separators is neither words nor a number."""
    if part.isdigit():
        return len(part) > 12
    digits = len(_DIGITS.findall(part))
    in_words = sum(len(word) for word in _WORDS.findall(part) if not _UNSPEAKABLE.search(word))
    return digits > 1 or in_words < len(part) * (0.75 if len(part) >= 10 else 0.5)
