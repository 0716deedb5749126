"""Django's cache as django-ratelimit uses it: in Redis, or in this worker's memory while that is away."""

from typing import Any

from django.core.cache.backends.locmem import LocMemCache

from ..fastpath.redis import Script, shared_store

LONGEST_SECONDS = 3600  # of the windows that are counted in

ADD = Script("return redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2], 'NX') and 1 or 0")
GET = Script("return tonumber(redis.call('GET', KEYS[1]) or -1)")
# An expired counter, or one that Redis has lost, begins again and must end.
INCREMENT = Script("""
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if count == tonumber(ARGV[1]) then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return count
""")


class SharedCounters(LocMemCache):
    """Numbers from 0 up; other operations are on this worker's memory."""

    def add(self, key: Any, value: int, timeout: Any = LONGEST_SECONDS, version: int | None = None) -> bool:
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
