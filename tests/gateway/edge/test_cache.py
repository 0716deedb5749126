"""django-ratelimit counts in Redis, and in this worker's memory as soon as Redis is lost."""

import pytest
from django.core.cache import cache
from gevent import Timeout, sleep

from gateway.fastpath import redis
from gateway.fastpath.redis import Script, SharedStore
from tests.patience import PATIENCE_SECONDS
from tests.servers.redis import PrivateRedis

ECHO = Script("return 1")


def test_a_counter_is_everybodys_and_begins_once(opened_store: SharedStore, redis_server: PrivateRedis) -> None:
    redis_server.restart()
    with Timeout(PATIENCE_SECONDS), pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis, "AWAY_SECONDS", 0.05)  # reconnects within some tries
        while opened_store.send(ECHO, b"key").wait() is None:
            sleep(0.02)
    assert cache.get("limit", 0) == 0
    assert [cache.add("limit", 1, 60), cache.add("limit", 1, 60)] == [True, False]
    assert [cache.incr("limit"), cache.get("limit", 0)] == [2, 2]


def test_a_count_that_redis_takes_away_with_it_goes_on_in_the_worker(
    opened_store: SharedStore, redis_server: PrivateRedis
) -> None:
    assert cache.add("gone", 1, 60)
    assert cache.incr("gone") == 2
    redis_server.stop()  # between two steps of django-ratelimit, which refuses if it cannot count
    try:
        assert [cache.incr("gone"), cache.incr("gone")] == [1, 2]
        assert cache.get("gone") == 2
    finally:
        redis_server.start()
