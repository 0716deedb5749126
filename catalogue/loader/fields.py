"""Reads the values of catalogue files. Errors do not quote a value, because it may be a secret."""

import contextlib
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any
from urllib.parse import urlsplit

from rest_framework import serializers

from gateway.edge.tables import LineField, PatternField

ANNOTATIONS = frozenset({"source", "as_of", "notes"})  # allowed in every table, stored in few
PLACEHOLDER = re.compile(r"\{(\w+)\}")
OWN_VARIABLES = frozenset(
    {"ALLOWED_HOSTS", "BIND", "CACHE_URL", "DATABASE_URL", "DEBUG", "EMAIL_URL", "ENV_FILE", "GUNICORN_CMD_ARGS"}
    | {
        "BILLING_CONTACT_URL",
        "MIGRATE_DATABASE_URL",
        "RECORD_YEARS",
        "MIGRATION_LOCK_TIMEOUT",
        "LOG_KEY",
        "LOG_KEY_FILE",
        "LOG_POLICY",
        "EMAIL_FROM",
        "OIDC_CLIENT_ID",
        "OIDC_CLIENT_SECRET",
        "OIDC_GROUPS",
        "OIDC_GROUPS_CLAIM",
        "OIDC_ISSUER",
        "OIDC_IS_SECOND_FACTOR",
        "OIDC_NAME",
        "OPERATOR_ADDRESS",
        "OPERATOR_EMAIL",
        "OPERATOR_LOGO",
        "OPERATOR_NAME",
        "OPERATOR_VAT_ID",
        "PASSWORD_SIGN_IN",
        "REQUIRE_SECOND_FACTOR",
        "PGPASSWORD",
        "PORT",
        "PUBLIC_URL",
        "SECRET_KEY",
        "SECRET_KEY_FALLBACKS",
        "WEB_CONCURRENCY",
    }
)
OWN_PREFIXES = ("DATABASE_", "GATEWAY_", "DJANGO_", "OTEL_")
_URL = re.compile(r"[A-Za-z0-9._~:/@!$&'()*+,;=%{}\[\]-]+")


class IsoDate(serializers.Field[date, Any, Any, Any]):
    """Accepts a day as YYYY-MM-DD."""

    def to_internal_value(self, data: Any) -> date:
        try:
            if isinstance(data, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", data):
                return date.fromisoformat(data)
        except ValueError:
            pass
        raise serializers.ValidationError("must be a date (YYYY-MM-DD)")


class UnixTime(IsoDate):
    """Accepts Unix seconds, or a date, as Unix seconds."""

    def to_internal_value(self, data: Any) -> Any:
        if type(data) is int:
            if not 0 <= data < 2**53:
                raise serializers.ValidationError("must be Unix seconds from 0")
            return data
        try:
            return int(datetime.combine(super().to_internal_value(data), time(), UTC).timestamp())
        except serializers.ValidationError:
            raise serializers.ValidationError("must be Unix seconds or a date (YYYY-MM-DD)") from None


class EnvName(PatternField):
    """Accepts the name of an environment variable, unless the gateway itself uses it."""

    def __init__(self, **options: Any) -> None:
        form = "the name of an environment variable (letters, digits, _)"
        super().__init__(r"[A-Za-z_][A-Za-z0-9_]*", form, max_length=100, **options)

    def to_internal_value(self, data: Any) -> str:
        name = super().to_internal_value(data)
        if name.upper() in OWN_VARIABLES or name.upper().startswith(OWN_PREFIXES):
            raise serializers.ValidationError(f"{name} is a variable of the gateway itself")
        return name


class BaseUrl(LineField):
    """Accepts an http(s) address without credentials, query and fragment; drops trailing slashes."""

    def to_internal_value(self, data: Any) -> str:
        url = super().to_internal_value(data)
        reason = self._fault_of(url)
        if reason:
            raise serializers.ValidationError(reason)
        return url.rstrip("/")

    def _fault_of(self, url: str) -> str:
        if "?" in url or "#" in url:
            return "must have no query and no fragment"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return "is not a valid URL"
        if parts.scheme not in ("http", "https") or not host or port == 0:
            return "must be an http:// or https:// URL with a host"
        if "@" in parts.netloc:
            return "must carry no credentials"
        is_valid = _URL.fullmatch(url) and not re.search(r"[{}]", PLACEHOLDER.sub("", url))
        return "" if is_valid else "is not a valid URL"


class Rows(serializers.Field[dict[str, Any], Any, Any, Any]):
    """Accepts a table of rows by key, and reports all faults at once."""

    def __init__(self, key: str, row: serializers.Field[Any, Any, Any, Any], column: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.key, self.row, self.column = PatternField(key, f"of the form {key}"), row, column

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError("must be a table")
        rows: dict[str, Any] = {}
        faults: dict[str, Any] = {}
        for key, value in data.items():
            if key in ANNOTATIONS:
                continue
            try:
                self.key.run_validation(key)
            except serializers.ValidationError as error:
                faults[str(key)] = {"its key": error.detail}
                continue
            try:
                row = self.row.run_validation(value)
                rows[key] = {self.column: row} if self.column else row
            except serializers.ValidationError as error:
                faults[key] = error.detail
        if faults:
            raise serializers.ValidationError(faults)
        return rows


class SourcedRows(Rows):
    """Accepts a table of rows, and gives each the `source` and `as_of` of the table."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        rows = super().to_internal_value(data)
        source, as_of = data.get("source"), None
        with contextlib.suppress(serializers.ValidationError):
            as_of = IsoDate().run_validation(data.get("as_of"))
        stated = {"source": " ".join(source.split())[:200] if isinstance(source, str) else "", "as_of": as_of}
        return {key: {**row, **stated} for key, row in rows.items()}
