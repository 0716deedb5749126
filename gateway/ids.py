"""Identifiers: time-ordered UUIDs (RFC 9562, version 7), ids of generations and requests."""

import os
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GENERATION_PREFIX, RESPONSE_PREFIX, MESSAGE_PREFIX = "gen-", "resp_", "msg_"
REQUEST_PREFIX = "req-"


def uuid7() -> UUID:
    """A UUID that sorts by its time of creation."""
    milliseconds, fraction = divmod(time.time_ns(), 1_000_000)
    value = milliseconds << 80
    value |= 0x7 << 76 | (fraction * 4096 // 1_000_000) << 64
    value |= 0x2 << 62 | int.from_bytes(os.urandom(8)) >> 2
    return UUID(int=value)


def first_uuid7(moment: datetime) -> UUID:
    """The lowest id made from a moment on."""
    milliseconds = max(0, (moment - EPOCH) // timedelta(milliseconds=1))
    return UUID(int=milliseconds << 80)


def generation_id(uuid: UUID, prefix: str = GENERATION_PREFIX) -> str:
    """The public form, with `gen-` or an answer's prefix."""
    return prefix + uuid.hex


def parse_generation_id(text: str) -> UUID | None:
    """The UUID behind a generation's public id, if it is one."""
    prefixes = (GENERATION_PREFIX, RESPONSE_PREFIX, MESSAGE_PREFIX)
    return next((parsed for prefix in prefixes if (parsed := _parsed(text, prefix))), None)


def request_id(uuid: UUID) -> str:
    """Our own name for an HTTP request."""
    return REQUEST_PREFIX + uuid.hex


def parse_request_id(text: str) -> UUID | None:
    """The UUID behind a request id, if it is one."""
    return _parsed(text, REQUEST_PREFIX)


def _parsed(text: str, prefix: str) -> UUID | None:
    digits = text.removeprefix(prefix)
    if digits == text or len(digits) != 32 or not set(digits) <= set("0123456789abcdef"):
        return None
    return UUID(hex=digits)
