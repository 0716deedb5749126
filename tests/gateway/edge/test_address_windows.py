"""Both stores of addresses' windows, Redis and a worker's memory, keep one rule (gateway/edge/address_windows.py)."""

from collections.abc import Iterator
from typing import Protocol

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.edge.address_windows import AddressWindows, MemoryAddressWindows, Rate, RedisAddressWindows
from gateway.fastpath.redis import SharedStore
from tests.servers.redis import PrivateRedis

RATE = Rate(2, 100_000)  # so long that the test's own duration does not matter
HERE, THERE = "192.0.2.1", "192.0.2.2"


class Store(Protocol):
    """Holds windows for which the test lets time pass."""

    windows: AddressWindows

    def let_pass(self, seconds: int) -> None: ...


class Memory:
    def __init__(self) -> None:
        self._now = 5.0
        self.windows: AddressWindows = MemoryAddressWindows(clock=lambda: self._now)

    def let_pass(self, seconds: int) -> None:
        self._now += seconds


class Redis:
    """Lets time pass by bringing the ends of the windows nearer."""

    def __init__(self, server: PrivateRedis) -> None:
        self.client = redis.Redis.from_url(server.url)
        self.windows: AddressWindows = RedisAddressWindows(
            while_away=MemoryAddressWindows(clock=lambda: pytest.fail("Redis was treated as away"))
        )

    def let_pass(self, seconds: int) -> None:
        for name in self.client.scan_iter("address:*"):
            self.client.pexpire(name, self.client.pttl(name) - seconds * 1000)  # removes it if this is not above 0


@pytest.fixture
def in_redis(redis_server: PrivateRedis, opened_store: SharedStore) -> Iterator[Redis]:
    store = Redis(redis_server)
    store.client.flushdb()
    yield store
    store.client.close()


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.process)])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = Memory() if request.param == "memory" else request.getfixturevalue("in_redis")
    return found


def test_as_many_requests_as_the_limit_are_admitted_and_one_more_waits_for_the_end(store: Store) -> None:
    assert [store.windows.count(HERE, RATE) for _ in range(2)] == [0, 0]
    store.let_pass(40_000)
    assert 50_000 < store.windows.count(HERE, RATE) <= 60_000


def test_all_of_a_window_ends_together_though_requests_were_refused_in_it(store: Store) -> None:
    assert not store.windows.count(HERE, RATE)
    store.let_pass(90_000)
    assert [bool(store.windows.count(HERE, RATE)) for _ in range(3)] == [False, True, True]
    store.let_pass(10_000)
    assert [bool(store.windows.count(HERE, RATE)) for _ in range(3)] == [False, False, True]


def test_addresses_are_counted_apart(store: Store) -> None:
    assert [store.windows.count(address, RATE) for address in (HERE, THERE, HERE, THERE)] == [0] * 4


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.one_of(st.sampled_from([HERE, THERE]), st.integers(1, 10)), max_size=40))
def test_both_stores_agree_on_any_sequence(in_redis: Redis, steps: list[str | int]) -> None:
    """A step is a request from an address, or a tenth of a window that passes, or several."""
    in_redis.client.flushdb()
    memory = Memory()
    for step in steps:
        if isinstance(step, str):
            assert bool(memory.windows.count(step, RATE)) == bool(in_redis.windows.count(step, RATE))
        else:
            for store in (memory, in_redis):
                store.let_pass(step * 10_000)


@pytest.mark.process
def test_redis_begins_a_new_window_if_its_clock_was_set_back(in_redis: Redis) -> None:
    assert [bool(in_redis.windows.count(HERE, RATE)) for _ in range(3)] == [False, False, True]
    in_redis.let_pass(-90_000)
    assert [bool(in_redis.windows.count(HERE, RATE)) for _ in range(3)] == [False, False, True]
    assert in_redis.windows.count(HERE, RATE) <= RATE.seconds


def test_a_window_that_redis_found_full_is_full_in_memory_until_then() -> None:
    now = 5.0
    windows = MemoryAddressWindows(clock=lambda: now)
    windows.remember_full(HERE, RATE, 30)
    now += 20
    windows.remember_full(HERE, RATE, 30)  # it is known, and its end does not move
    assert windows.seconds_left(HERE, RATE) == 10
    now += 10
    assert (windows.seconds_left(HERE, RATE), windows.count(HERE, RATE)) == (0, 0)


def test_a_worker_remembers_a_number_of_addresses_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.edge.address_windows.MOST_ADDRESSES", 2)
    windows = MemoryAddressWindows(clock=lambda: 5.0)
    for address in (HERE, THERE, "192.0.2.3"):
        windows.remember_full(address, RATE, 30)
    assert [windows.seconds_left(address, RATE) for address in (HERE, THERE)] == [0, 30]
