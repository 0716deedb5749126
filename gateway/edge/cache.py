"""Implements the part of Django's cache that django-ratelimit and allauth's one-time codes use.

It is in Redis, or in memory while Redis is away.
"""

from typing import Any

from django.core.cache.backends.locmem import LocMemCache

from ..fastpath.redis import Script, shared_store

LONGEST_SECONDS = 3600  # the longest window

ADD = Script("return redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2], 'NX') and 1 or 0")
GET = Script("return tonumber(redis.call('GET', KEYS[1]) or -1)")
# A counter that expired or that Redis lost starts again, so it needs an expiry too.
INCREMENT = Script("""
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if count == tonumber(ARGV[1]) then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return count
""")


class SharedCounters(LocMemCache):
    """Shares counters (whole numbers from 0) between workers. Other cache operations use this worker's memory."""

    def add(self, key: Any, value: Any, timeout: Any = LONGEST_SECONDS, version: int | None = None) -> bool:
        if not isinstance(value, int):
            value = 1  # a mark that only its key matters for, such as a one-time code that was used
        line = shared_store.send(ADD, self._name(key, version), b"%d" % value, b"%d" % timeout).wait()
        return super().add(key, value, timeout, version) if line is None else line == b":1"

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        line = shared_store.send(GET, self._name(key, version)).wait()
        if line is None:
            return super().get(key, default, version)
        return default if line == b":-1" else int(line[1:])

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        line = shared_store.send(INCREMENT, self._name(key, version), b"%d" % delta, b"%d" % LONGEST_SECONDS).wait()
        if line is not None:
            return int(line[1:])
        super().add(key, 0, LONGEST_SECONDS, version)
        return super().incr(key, delta, version)

    def _name(self, key: Any, version: int | None) -> bytes:
        return self.make_and_validate_key(key, version).encode()
