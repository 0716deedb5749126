"""The cache that limits are counted in: Redis, and this worker's memory from the moment Redis is away."""

import pytest
from pytest_django import Settings

from gateway.cache import SharedCache
from tests.servers.redis import PrivateRedis

pytestmark = pytest.mark.sqlite_is_enough


def test_a_count_that_redis_takes_away_with_it_goes_on_in_the_worker(
    redis_server: PrivateRedis, settings: Settings
) -> None:
    settings.SHARED_CACHE_URL = redis_server.url
    cache = SharedCache(redis_server.url, {})
    assert cache.add("limit", 1, 60)
    assert cache.incr("limit") == 2
    redis_server.stop()  # between the two steps of django-ratelimit, which would refuse what it cannot count
    try:
        assert [cache.incr("limit"), cache.incr("limit")] == [1, 2]
        assert cache.get("limit") == 2
    finally:
        redis_server.start()
