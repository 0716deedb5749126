"""Quotes an upstream's messages without secrets and addresses."""

import base64
import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

QUOTE_LENGTH = 300
READ_LENGTH = 1200  # characters of an upstream's message that are examined
REDACTED = "[…]"
SHORTEST_RUN = 20  # characters; a shorter run may be an ordinary name with letters and digits
SHORTEST_MIXTURE = 16  # characters of the run, in parts that are not words
SHORTEST_ENCODED = 6  # characters of base64 that cannot match by chance

# A word begins here, also after an escape of JSON or of a URL.
_BEGIN = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_TAIL = r"[\w.*…-]"  # the characters of a key, masked or not
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
            # Without digits, if it is named as a secret: after `=`, within quotes, or in a URL's query.
            rf"{_BEGIN}(?i:{_NAMES})['\"\\]*\s?=\s?['\"\\]*[^\s'\"&,;}}\\]{{4,}}",
            rf"(?i:{_NAMES})['\"\\]*\s?:\s?\\?['\"][^'\"\\]{{4,}}",
            rf"(?i:{_NAMES})['\"\\]*\s?:\s?(?=[^\s'\",]*\d)[^\s'\"&,;}}\\]{{6,}}",
            r"(?<=[?&])(?i:[\w-]*(?:key|token|secret|sig|signature|auth|code))=[^&\s'\"]+",
            # Secrets that the upstream has masked already.
            r"(?<!\w)\w{1,99}\*{3,}\w*|(?<!\*)\*{3,}\w+",
        )
    )
)
_LABEL = r"[\w-]{1,63}"
_HASH = "[bcdfghjklmnpqrstvwxz2456789]"  # the characters in Kubernetes' names of pods
_ADDRESSES = re.compile(
    "|".join(
        (
            r"\b[a-z][a-z0-9+.-]*://\S+",
            r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b",
            r"\[[0-9a-f:]{3,}\](?::\d+)?",
            r"(?<![\w:])(?=[0-9a-f:]*\d)(?:[0-9a-f:]*::[0-9a-f:]*|(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4})(?:%\w+)?(?![\w:])",
            r"\blocalhost\b(?::\d+)?",
            rf"(?<![\w.-])(?:{_LABEL}\.){{1,9}}(?:internal|intranet|intra|local|localdomain|lan|corp|private|priv|svc|consul|docker"
            r"|k8s|vpc|onion|arpa)\b(?:\.[a-z0-9-]+)*(?::\d+)?",
            rf"(?<![\w.-])(?:{_LABEL}\.){{1,9}}[a-z]{{2,}}:\d{{2,5}}\b",
            # Hosts of one label: with a port, after a word that precedes hosts, or named as clouds and Kubernetes do.
            rf"(?<![\w./-])(?=[\w-]*[a-z])(?=[\w-]*\d){_LABEL}:\d{{4,5}}(?![\w-])",
            rf"(?:(?<=\bto )|(?<=\btcp )|(?<=\bupstream )|(?<=@)){_LABEL}:\d{{2,5}}(?![\w-])",
            r"(?:(?<=\bhost=)|(?<=\bhostname=))['\"]?[\w.-]+['\"]?",
            r"(?<=['\"]host['\"]: )['\"][\w.-]+['\"]",
            r"(?<=\blookup )[\w.-]+(?= on |: no such host)",
            r"\bip(?:-\d{1,3}){4}\b",
            rf"(?<![\w.-])(?:[a-z0-9]+-)+{_HASH}{{7,10}}-{_HASH}{{5}}(?![\w-])",
        )
    ),
    re.IGNORECASE,
)
_BASE64 = r"(?:[\w+/-]|%(?:25)*2[BbFf]|\\/)"
_RUNS = re.compile(rf"[A-Za-z0-9+/_=-]{{{SHORTEST_RUN},}}")
_PARTS = re.compile(r"[A-Za-z0-9]+")
_WORDS = re.compile(r"[A-Z][a-z]{2,}|[a-z]{3,}")
_UNSPEAKABLE = re.compile(r"^[^aeiouy]+$|[^aeiouy]{5}|.{31}", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
# Ids that clients have been given; a message about one must show it.
_IDS = re.compile(r"(?:toolu|call|msg|req|resp|chatcmpl|cmpl|gen)[_-][A-Za-z0-9]+")


def quoted(words: str, credentials: Iterable[str], base_url: str) -> str:
    """Returns an upstream's message on one line, shortened, without credentials, addresses and control characters.

    `credentials` and `base_url` were used in the call to the upstream, and are removed in any encoding.
    """
    text = " ".join(words[:READ_LENGTH].split())
    if not text.isprintable():  # clients print errors on terminals
        text = "".join(filter(str.isprintable, text))
    if len(words) > READ_LENGTH:
        text = text.rpartition(" ")[0]  # a secret that is cut in half might not be recognised
    text = re.sub("|".join(_private(credentials, base_url)), REDACTED, text)
    text = without_secrets(text)
    return text if len(text) <= QUOTE_LENGTH else text[:QUOTE_LENGTH] + "…"


def without_secrets(text: str) -> str:
    """Returns the text with everything that looks like a secret or an internal address replaced."""
    return _SECRETS.sub(REDACTED, _RUNS.sub(_run, _ADDRESSES.sub(REDACTED, text)))


def _private(credentials: Iterable[str], base_url: str) -> Iterator[str]:
    # plain, and in any encoding
    for credential in credentials:
        yield _in_any_writing(credential)
        for part in _within_base64(credential.encode()):
            yield rf"{_BASE64}{{0,120}}?{_in_any_writing(part)}(?:{_BASE64}|=|%(?:25)*3[Dd])*"
    address = urlsplit(base_url)
    yield f"(?i:{re.escape(address.netloc)})"
    host = re.escape(address.hostname or "")
    labels = (address.hostname or "").split(".")
    if len(labels) > 1:
        yield f"(?i:{host})"
        if labels[-1].isalpha():  # also other hosts of the domain
            yield rf"(?i:(?<![\w.-])(?:{_LABEL}\.){{1,9}}{re.escape('.'.join(labels[-2:]))}(?::\d+)?)(?![\w-])"
    elif re.search(r"[\d-]", host):  # a host without these may be an ordinary word
        yield rf"(?i:(?<![\w-]){host}(?![\w-]))"


def _within_base64(secret: bytes) -> Iterator[str]:
    # A secret can start at three offsets in a group of base64.
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret).decode()
        part = encoded[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        if len(part) >= SHORTEST_ENCODED:
            yield part


def _in_any_writing(text: str) -> str:
    # also percent-encoded (once or twice), escaped in JSON, or in base64 for URLs
    return "".join(char if char.isascii() and char.isalnum() else _written(char) for char in text)


def _written(char: str) -> str:
    alike = next((pair for pair in ("+-", "/_") if char in pair), char)
    ways = [re.escape(each) for each in alike]
    ways += [f"(?i:{''.join(f'%(?:25)*{byte:02x}' for byte in each.encode())})" for each in alike]
    ways += [rf"\\+(?:{re.escape(each)}|(?i:u{ord(each):04x}))" for each in alike]
    return f"(?:{'|'.join(ways)})"


def _run(found: re.Match[str]) -> str:
    """Replaces a long run of letters and digits, unless it reads like words."""
    run = found[0]
    mixed = sum(len(part) for part in _PARTS.findall(run) if _is_mixture(part))
    return run if mixed < SHORTEST_MIXTURE or _IDS.fullmatch(run) else REDACTED


def _is_mixture(part: str) -> bool:
    """Tells whether a part is neither a number nor mostly words."""
    if part.isdigit():
        return len(part) > 12
    digits = len(_DIGITS.findall(part))
    in_words = sum(len(word) for word in _WORDS.findall(part) if not _UNSPEAKABLE.search(word))
    return digits > 1 or in_words < len(part) * (0.75 if len(part) >= 10 else 0.5)
