"""Makes and parses identifiers: time-ordered UUIDs (RFC 9562, version 7), ids of generations and of requests."""

import os
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GENERATION_PREFIX, RESPONSE_PREFIX, MESSAGE_PREFIX = "gen-", "resp_", "msg_"
REQUEST_PREFIX = "req-"


def uuid7() -> UUID:
    """Returns a UUID that sorts by its time of creation."""
    milliseconds, fraction = divmod(time.time_ns(), 1_000_000)
    value = milliseconds << 80
    value |= 0x7 << 76 | (fraction * 4096 // 1_000_000) << 64
    value |= 0x2 << 62 | int.from_bytes(os.urandom(8)) >> 2
    return UUID(int=value)


def first_uuid7(moment: datetime) -> UUID:
    """Returns the lowest id that can be made at this moment or later."""
    milliseconds = max(0, (moment - EPOCH) // timedelta(milliseconds=1))
    return UUID(int=milliseconds << 80)


def generation_id(uuid: UUID, prefix: str = GENERATION_PREFIX) -> str:
    """Returns the public form of an id, with `gen-` or the prefix of a wire form's answers."""
    return prefix + uuid.hex


def parse_generation_id(text: str) -> UUID | None:
    """Returns the UUID in a generation's public id, or None if the text is not one."""
    prefixes = (GENERATION_PREFIX, RESPONSE_PREFIX, MESSAGE_PREFIX)
    return next((parsed for prefix in prefixes if (parsed := _parsed(text, prefix))), None)


def request_id(uuid: UUID) -> str:
    """Returns the gateway's own id for an HTTP request (`x-request-id`)."""
    return REQUEST_PREFIX + uuid.hex


def parse_request_id(text: str) -> UUID | None:
    """Returns the UUID in a request id, or None if the text is not one."""
    return _parsed(text, REQUEST_PREFIX)


def _parsed(text: str, prefix: str) -> UUID | None:
    digits = text.removeprefix(prefix)
    if digits == text or len(digits) != 32 or not set(digits) <= set("0123456789abcdef"):
        return None
    return UUID(hex=digits)
