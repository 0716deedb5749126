"""The kinds of value that a catalogue file holds. Stricter than DRF's: a number is no string and `yes` no boolean.

Reasons never quote a value that might be a secret put in the wrong place (an URL with a password, a pasted key).
"""

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from rest_framework import serializers

OWN_VARIABLES = frozenset(
    {"ALLOWED_HOSTS", "BIND", "CACHE_URL", "DATABASE_URL", "DEBUG", "EMAIL_URL", "ENV_FILE", "GUNICORN_CMD_ARGS"}
    | {"EMAIL_FROM", "PGPASSWORD", "PORT", "PUBLIC_URL", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "WEB_CONCURRENCY"}
)
OWN_PREFIXES = ("GATEWAY_", "DJANGO_")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
_OWN_REQUEST_FIELDS = frozenset(
    {"model", "messages", "prompt", "input", "stream", "stream_options", "max_tokens", "max_completion_tokens"}
)
_PLAIN_NUMBER = re.compile(r"[0-9]{1,40}(\.[0-9]{1,40})?")
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_URL = re.compile(r"[A-Za-z0-9._~:/@!$&'()*+,;=%{}\[\]-]+")
# Authorization would put a secret into the database; the others belong to the HTTP client.
_RESERVED_HEADERS = frozenset(
    {"api-key", "authorization", "cookie", "proxy-authorization", "x-api-key"}
    | {"connection", "content-encoding", "content-length", "content-type", "expect", "host", "te"}
    | {"transfer-encoding", "upgrade"}
)


class Text(serializers.CharField):
    """A string of one line; whether it looks like a number decides the file's quoting, not us."""

    default_error_messages = {
        "type": "must be a string (quote it)",
        "unprintable": "must be one line of printable text",
    }

    def run_validation(self, data: Any = serializers.empty) -> str:
        if data is not serializers.empty and not isinstance(data, str):
            self.fail("type")
        text: str = super().run_validation(data)
        return text

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not text.isprintable():
            self.fail("unprintable")
        return text


class Pattern(Text):
    """A string of a given form."""

    def __init__(self, pattern: str, form: str, **options: Any) -> None:
        super().__init__(**options)
        self.pattern, self.form = re.compile(pattern), form

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not self.pattern.fullmatch(text):
            raise serializers.ValidationError(f"must be {self.form}")
        return text


class OneOf(serializers.ChoiceField):
    """One word of a few."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data not in self.choices:
            raise serializers.ValidationError(f"must be one of {', '.join(map(str, self.choices))}")
        return data


class Flag(serializers.BooleanField):
    """true or false."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            raise serializers.ValidationError("must be true or false")
        return data


class Whole(serializers.IntegerField):
    """A whole number."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            raise serializers.ValidationError("must be a whole number")
        return data


class Exact(serializers.Field[Decimal, Any, Any, Any]):
    """A decimal from 0 to `most` with at most `places` fractional digits. A quoted one is as exact as a bare one."""

    def __init__(self, *, places: int, most: Decimal, above_zero: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.places, self.most, self.above_zero = places, most, above_zero

    def to_internal_value(self, data: Any) -> Decimal:
        value = _decimal(data)
        if value is None or not value.is_finite():
            raise serializers.ValidationError("must be a number")
        if value < 0 or (self.above_zero and value == 0):
            raise serializers.ValidationError("must be above zero" if self.above_zero else "must not be negative")
        if value > self.most:
            raise serializers.ValidationError(f"must be at most {self.most:,f}")
        shortest = _without_trailing_zeros(value)
        if int(shortest.as_tuple().exponent) < -self.places:
            raise serializers.ValidationError(f"must have at most {self.places} fractional digits")
        return shortest

    def to_representation(self, value: Decimal) -> str:
        return str(value)


def _decimal(data: object) -> Decimal | None:
    if isinstance(data, Decimal):
        return data
    is_number = isinstance(data, int) and not isinstance(data, bool)
    return Decimal(data) if is_number or (isinstance(data, str) and _PLAIN_NUMBER.fullmatch(data)) else None  # type: ignore[arg-type]


def _without_trailing_zeros(value: Decimal) -> Decimal:
    """`Decimal.normalize` for any length: that one rounds to the 28 digits of the context first."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    return Decimal((sign, tuple(map(int, kept)), int(exponent) + len(text) - len(kept))) if kept else Decimal(0)


class IsoDate(serializers.Field[date, Any, Any, Any]):
    """A day, as YYYY-MM-DD."""

    def to_internal_value(self, data: Any) -> date:
        try:
            if isinstance(data, str) and _ISO_DATE.fullmatch(data):
                return date.fromisoformat(data)
        except ValueError:
            pass
        raise serializers.ValidationError("must be a date (YYYY-MM-DD)")

    def to_representation(self, value: date) -> str:
        return value.isoformat()


class UnixTime(IsoDate):
    """A moment in Unix seconds; a date stands for its first second in UTC."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, int) and not isinstance(data, bool):
            if not 0 <= data < 2**53:
                raise serializers.ValidationError("must be Unix seconds from 0")
            return data
        try:
            return int(datetime.combine(super().to_internal_value(data), time(), UTC).timestamp())
        except serializers.ValidationError:
            raise serializers.ValidationError("must be Unix seconds or a date (YYYY-MM-DD)") from None


class EnvName(Text):
    """The name of an environment variable that is not the gateway's own."""

    def to_internal_value(self, data: Any) -> str:
        name = super().to_internal_value(data)
        if not _ENV_NAME.fullmatch(name):
            raise serializers.ValidationError("must be the name of an environment variable (letters, digits, _)")
        if name.upper() in OWN_VARIABLES or name.upper().startswith(OWN_PREFIXES):
            raise serializers.ValidationError(f"{name} is a variable of the gateway itself")
        return name


class BaseUrl(Text):
    """An http(s) address without credentials, query or fragment; its trailing slashes are dropped."""

    def to_internal_value(self, data: Any) -> str:
        url = super().to_internal_value(data)
        reason = _fault_of_url(url)
        if reason:
            raise serializers.ValidationError(reason)
        return url.rstrip("/")


def _fault_of_url(url: str) -> str:
    if "?" in url or "#" in url:
        return "must have no query and no fragment"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "is no valid URL"
    if parts.scheme not in ("http", "https") or not host or port == 0:
        return "must be an http:// or https:// URL with a host"
    if "@" in parts.netloc:
        return "must carry no credentials"
    if not _URL.fullmatch(url) or re.search(r"[{}]", PLACEHOLDER.sub("", url)):
        return "is no valid URL"
    return ""


class HeaderToken(Text):
    """The name of an HTTP header, or an authentication scheme."""

    def to_internal_value(self, data: Any) -> str:
        token = super().to_internal_value(data)
        if not _HEADER_TOKEN.fullmatch(token):
            raise serializers.ValidationError("must be a single HTTP token")
        return token


class HeaderValue(Text):
    """What an HTTP header may carry without a surprise: visible ASCII with spaces inside."""

    def to_internal_value(self, data: Any) -> str:
        value = super().to_internal_value(data)
        if not _HEADER_VALUE.fullmatch(value):
            raise serializers.ValidationError("must be visible ASCII on one line")
        return value


class Headers(serializers.DictField):
    """Headers sent with every call to a provider."""

    child = HeaderValue(max_length=1000)

    def to_internal_value(self, data: Any) -> dict[Any, Any]:
        headers = super().to_internal_value(data)
        for name in headers:
            if not _HEADER_TOKEN.fullmatch(name):
                raise serializers.ValidationError("has a key that is no header name")
            if name.lower() in _RESERVED_HEADERS:
                raise serializers.ValidationError(f"must not set {name}")
        if len({name.lower() for name in headers}) < len(headers):
            raise serializers.ValidationError("names a header twice")
        return headers


class RequestFields(serializers.ListField):
    """Top-level fields of a request, those apart that the gateway writes itself."""

    child = Pattern(r"[a-z][a-z0-9_]*", "the name of a request field (a-z, 0-9, _)", max_length=100)

    def to_internal_value(self, data: Any) -> list[str]:
        names: list[str] = super().to_internal_value(data)
        own = sorted(_OWN_REQUEST_FIELDS.intersection(names))
        if own:
            raise serializers.ValidationError(
                f"must not have {', '.join(own)}: the gateway needs them or has a key for them"
            )
        return list(dict.fromkeys(names))


class EnvTable(serializers.DictField):
    """Placeholders of a base_url, each with the environment variable that fills it."""

    child = EnvName(max_length=100)

    def to_internal_value(self, data: Any) -> dict[Any, Any]:
        table = super().to_internal_value(data)
        for name in table:
            if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or name == "upstream_region":
                raise serializers.ValidationError("has a key that is no placeholder name (a-z, 0-9, _)")
        return table
