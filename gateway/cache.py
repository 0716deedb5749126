"""Django's cache for what several workers count together, such as the requests of one client (django-ratelimit).

Redis, through the process's one pool; in this worker's memory while it is away (`gateway.shared_store`).
"""

import functools
from collections.abc import Callable
from typing import Any

import redis
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache, RedisCacheClient

from .shared_store import shared_store

# Django's own takes two steps, between which the key may expire.
INCREMENT = "return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('INCRBY', KEYS[1], ARGV[1]) or false"


class _PooledClient(RedisCacheClient):
    """Django's client, on the pool that the process has already."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__([])
        self._shared = client
        self._increment = client.register_script(INCREMENT)

    def get_client(self, key: Any = None, *, write: bool = False) -> redis.Redis:
        return self._shared

    def incr(self, key: Any, delta: int) -> int:
        found = self._increment(keys=[key], args=[delta])
        if found is None:
            raise ValueError(f"Key {key!r} not found.")
        return int(found)


_pooled_client = functools.cache(_PooledClient)


def _either(operation: str) -> Callable[..., Any]:
    """The operation on Redis, or on this worker's memory."""

    def method(cache: "SharedCache", *args: Any, **kwargs: Any) -> Any:
        shared, own = getattr(RedisCache, operation), getattr(cache.own, operation)
        return cache.store.ask(lambda _: shared(cache, *args, **kwargs), lambda: own(*args, **kwargs))

    return method


class SharedCache(RedisCache):
    """Django's Redis cache, whose every operation has a memory of this worker to fall back to."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        store = shared_store()
        assert store is not None  # noqa: S101  # settings choose this cache where CACHE_URL names a Redis
        self.store = store
        self.own = LocMemCache("shared-cache-fallback", params)

    @property
    def _cache(self) -> RedisCacheClient:
        return _pooled_client(self.store.client)

    add, get, set, touch = _either("add"), _either("get"), _either("set"), _either("touch")
    delete, has_key, clear = _either("delete"), _either("has_key"), _either("clear")
    get_many, set_many, delete_many = _either("get_many"), _either("set_many"), _either("delete_many")

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """In this worker's memory from 0 on: Redis may have gone, with its count, since somebody looked."""

        def alone() -> int:
            self.own.add(key, 0, version=version)
            return self.own.incr(key, delta, version)

        shared = super().incr
        return self.store.ask(lambda _: shared(key, delta, version), alone)
