"""What the workers share in memory: Redis, where CACHE_URL names one. While it is away, each counts alone.

One connection pool serves the whole process: Django would make one for each greenlet, and so for each client.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

logger = logging.getLogger(__name__)
T = TypeVar("T")

POOL_SIZE = 256
WAIT_SECONDS = 3.0  # for a connection, an answer, a free place in the pool: a busy worker may take a second itself
AWAY_SECONDS = 10.0  # after a failure nobody tries again for so long

Away = (redis.RedisError, OSError)


class SharedStore:
    """A Redis that may be away. Its calls take `WAIT_SECONDS` at the worst, and then nothing for `AWAY_SECONDS`."""

    def __init__(self, url: str) -> None:
        self._pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=POOL_SIZE,
            timeout=WAIT_SECONDS,
            socket_timeout=WAIT_SECONDS,
            socket_connect_timeout=WAIT_SECONDS,
            # A pooled connection may have died with its server; a call that timed out has had its chance.
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        )
        self.client = redis.Redis(connection_pool=self._pool)
        self._lock = threading.Lock()
        self._next_try = 0.0
        self._is_away = False

    def ask(self, act: Callable[[redis.Redis], T], instead: Callable[[], T]) -> T:
        """What `act` finds in Redis; while it is away what `instead` finds in this worker, with one warning."""
        if self._is_away and not self._may_try():
            return instead()
        try:
            found = act(self.client)
        except Away as error:
            self._note_away(error)
            return instead()
        self._note_here()
        return found

    def _may_try(self) -> bool:
        """True for one caller each `AWAY_SECONDS`: the others need not wait for it."""
        with self._lock:
            now = time.monotonic()
            if now < self._next_try:
                return False
            self._next_try = now + AWAY_SECONDS
            return True

    def _note_away(self, error: Exception) -> None:
        with self._lock:
            self._next_try = time.monotonic() + AWAY_SECONDS
            already, self._is_away = self._is_away, True
        if not already:
            logger.warning("Redis is away (%s): each worker counts limits alone until it is back", type(error).__name__)

    def _note_here(self) -> None:
        if self._is_away:
            with self._lock:
                was_away, self._is_away = self._is_away, False
            if was_away:
                logger.warning("Redis is back: the workers count limits together again")


_stores: dict[str, SharedStore] = {}
_making = threading.Lock()


def shared_store() -> SharedStore | None:
    """The process's one store; None where CACHE_URL names no Redis."""
    url: str | None = settings.SHARED_CACHE_URL
    if url is None:
        return None
    with _making:
        if url not in _stores:
            _stores[url] = SharedStore(url)
        return _stores[url]
