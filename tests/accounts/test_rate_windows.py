"""Both stores of windows, Redis and a worker's memory, keep the one rule of accounts/rate_window_rule.py."""

from collections.abc import Iterator, Sequence
from typing import NoReturn, Protocol

import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from accounts.rate_window_rule import BoundState, RateBound, RateLimits, Windows, WindowState
from accounts.windows_in_memory import MemoryWindows
from accounts.windows_in_redis import RedisWindows
from gateway.edge.address_limit import UNLIMITED, AddressCheck
from gateway.edge.address_windows import MemoryAddressWindows, Rate
from gateway.errors import TooManyRequests
from gateway.fastpath.redis import SharedStore
from tests.servers.redis import PrivateRedis

KEY = "0123"
BEGINNING = 1_000_000.5
UNBOUNDED = 10**9


class Store(Protocol):
    """Holds windows whose clock stands still until the test lets time pass."""

    windows: Windows

    def begin_empty(self) -> None: ...

    def let_pass(self, seconds: float) -> None: ...


class Memory:
    def __init__(self) -> None:
        self.begin_empty()

    def begin_empty(self) -> None:
        self._now = BEGINNING
        self.windows: Windows = MemoryWindows(clock=lambda: self._now)

    def let_pass(self, seconds: float) -> None:
        self._now += seconds


class Redis:
    """Keeps the time in a key of the same Redis."""

    def __init__(self, server: PrivateRedis) -> None:
        self.client = redis.Redis.from_url(server.url)
        self.windows: Windows = RedisWindows(Unused(), clock="redis.call('GET', 'clock')")
        self._set_clock(BEGINNING)

    def begin_empty(self) -> None:
        self._wait_for_spends()
        self.client.flushdb()
        self._set_clock(BEGINNING)

    def let_pass(self, seconds: float) -> None:
        self._wait_for_spends()
        self._set_clock(self._now + seconds)

    def _set_clock(self, now: float) -> None:
        self._now = now
        self.client.set("clock", int(now))

    def _wait_for_spends(self) -> None:
        self.windows.admit([bound(0, 0, "another")], UNLIMITED)  # its reply comes after theirs


class Unused:
    """Fails if it counts anything, because Redis is not away."""

    def admit(self, bounds: Sequence[RateBound], address: AddressCheck) -> NoReturn:
        pytest.fail("Redis was treated as away")

    def look(self, bounds: Sequence[RateBound]) -> NoReturn:
        pytest.fail("Redis was treated as away")

    def spend(self, name: str, tokens: int) -> None:
        pytest.fail("Redis was treated as away")


@pytest.fixture
def in_redis(redis_server: PrivateRedis, opened_store: SharedStore) -> Iterator[Redis]:
    store = Redis(redis_server)
    store.begin_empty()
    yield store
    store.client.close()


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.process)])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = Memory() if request.param == "memory" else request.getfixturevalue("in_redis")
    return found


def bound(requests: int, tokens: int, name: str = KEY) -> RateBound:
    return RateBound(name, "This key's limit", RateLimits(requests, tokens))


def admit(store: Store, *, requests: int = 0, tokens: int = 0, key: str = KEY) -> BoundState:
    (state,) = store.windows.admit([bound(requests, tokens, key)], UNLIMITED)
    return state


def count(store: Store, requests: int, *, tokens: int = 0) -> None:
    """Counts requests and tokens of this second, without a limit that could refuse them."""
    for _ in range(requests):
        assert not admit(store, requests=UNBOUNDED).wait
    if tokens:
        store.windows.spend(KEY, tokens)


def test_as_many_requests_as_the_limit_are_admitted_and_one_more_is_not(store: Store) -> None:
    found = [admit(store, requests=3).requests for _ in range(4)]
    assert found == [(2, 61, 0), (1, 61, 0), (0, 61, 0), (0, 61, 61)]


def test_what_is_refused_is_not_counted(store: Store) -> None:
    count(store, 2)
    store.let_pass(30)
    assert [admit(store, requests=2).requests for _ in range(3)] == [(0, 31, 31)] * 3
    assert admit(store, requests=3).requests == (0, 61, 0)


def test_a_request_counts_until_sixty_seconds_after_the_end_of_its_second(store: Store) -> None:
    count(store, 1)
    store.let_pass(31)
    count(store, 1)
    store.let_pass(29)
    assert admit(store, requests=2).requests == (0, 32, 1)
    store.let_pass(1)
    assert admit(store, requests=2).requests == (0, 61, 0)
    store.let_pass(61)
    assert admit(store, requests=2).requests == (1, 61, 0)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(pauses=[0.499] + [0.0] * 4 + [59.4] + [0.0] * 5)
@given(pauses=st.lists(st.floats(0, 62), max_size=40))
def test_no_sixty_seconds_hold_more_than_the_limit(store: Store, pauses: list[float]) -> None:
    """Each pause precedes a request."""
    store.begin_empty()
    now, admitted = BEGINNING, []
    for pause in pauses:
        store.let_pass(pause)
        now += pause
        if not admit(store, requests=5).wait:
            admitted.append(now)
    assert all(later - earlier > 60 for earlier, later in zip(admitted, admitted[5:], strict=False))


@pytest.mark.parametrize("seconds", [62, 86_400, 100_000_000])
def test_a_clock_that_is_set_back_far_begins_empty_windows(store: Store, seconds: int) -> None:
    count(store, 3, tokens=9)
    store.let_pass(-seconds)
    found = [admit(store, requests=2, tokens=9) for _ in range(3)]
    assert [state.requests for state in found] == [(1, 61, 0), (0, 61, 0), (0, 61, 61)]
    assert found[0].tokens == (9, 0, 0)


def test_a_clock_that_is_set_back_a_little_changes_no_window(store: Store) -> None:
    count(store, 3)
    store.let_pass(-61)
    assert admit(store, requests=3).requests == (0, 122, 122)


def test_the_wait_ends_when_the_window_holds_less_than_the_limit(store: Store) -> None:
    count(store, 1)
    store.let_pass(10)
    count(store, 2)
    store.let_pass(30)
    count(store, 2)
    store.let_pass(10)
    assert admit(store, requests=3).requests == (0, 51, 21)


def test_tokens_are_spent_beyond_what_is_left_and_then_nothing_is_admitted(store: Store) -> None:
    assert admit(store, tokens=100).tokens == (100, 0, 0)
    store.windows.spend(KEY, 99)
    assert admit(store, tokens=100).tokens == (1, 61, 0)
    store.windows.spend(KEY, 5000)
    assert admit(store, tokens=100).tokens == (0, 61, 61)


def test_a_request_that_the_tokens_refuse_takes_no_request(store: Store) -> None:
    count(store, 0, tokens=100)
    store.let_pass(20)
    assert admit(store, requests=1, tokens=100) == (WindowState(1, 0, 0), WindowState(0, 41, 41))
    assert admit(store, requests=1, tokens=101) == (WindowState(0, 61, 0), WindowState(1, 41, 0))


def test_what_has_no_limit_is_not_looked_at(store: Store) -> None:
    count(store, 1, tokens=1)
    assert admit(store) == (WindowState(0, 0, 0), WindowState(0, 0, 0))


def test_keys_are_counted_apart(store: Store) -> None:
    count(store, 1)
    assert admit(store, requests=1, key="another").requests == (0, 61, 0)


def test_a_request_beyond_its_address_limit_takes_nothing_of_the_keys_limits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.edge.address_limit._in_memory", MemoryAddressWindows())
    for _ in range(2):
        store.windows.admit([bound(9, 9)], AddressCheck("192.0.2.9", Rate(2, 60)))
    beyond = AddressCheck("192.0.2.9", Rate(2, 60))
    with pytest.raises(TooManyRequests) as refused:
        store.windows.admit([bound(9, 9)], beyond)
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 60
    with pytest.raises(TooManyRequests):
        beyond.check()
    assert admit(store, requests=9, tokens=9).requests.remaining == 6  # of the two that were admitted and this one


def test_redis_counts_a_request_once_for_its_address_however_often_it_is_checked(in_redis: Redis) -> None:
    address = AddressCheck("192.0.2.10", Rate(2, 60))
    in_redis.windows.admit([bound(9, 9)], address)
    in_redis.windows.admit([bound(9, 9)], address)
    address.check()
    assert [in_redis.client.get(name) for name in in_redis.client.scan_iter("address:*:192.0.2.10")] == [b"1"]


def test_redis_forgets_a_key_that_rests(in_redis: Redis) -> None:
    in_redis.windows.spend(KEY, 1)
    admit(in_redis, requests=1, tokens=9)
    left = [in_redis.client.pttl(name) for name in in_redis.client.scan_iter("rate:*")]
    assert len(left) == 2
    assert all(0 < milliseconds <= 61_000 for milliseconds in left)


def test_redis_keeps_no_counter_that_counts_no_more(in_redis: Redis) -> None:
    for requests, tokens, seconds in ((1, 0, 5), (2, 5, 4), (3, 0, 57), (4, 0, 3)):  # from 69 to 3 seconds ago
        count(in_redis, requests, tokens=tokens)
        in_redis.let_pass(seconds)
    admit(in_redis, requests=1, tokens=1)
    counters = {name: in_redis.client.hgetall(name) for name in in_redis.client.scan_iter("rate:*")}
    assert list(counters) == [f"rate:{{{KEY}}}:requests".encode()]
    (fields,) = counters.values()
    assert len(fields) == 5  # sum, first, last, and the counters of 60 and 3 seconds ago
    assert fields[b"sum"] == b"7"


def test_a_worker_forgets_a_key_that_rests() -> None:
    store = Memory()
    admit(store, requests=1, tokens=1, key="resting")
    store.windows.spend("resting", 1)
    store.let_pass(61)
    admit(store, requests=1, tokens=1, key="busy")
    store.let_pass(-61)  # as if it had not happened
    assert admit(store, requests=1, tokens=1, key="resting").requests == (0, 61, 0)


limits = st.integers(0, 6)
steps = st.one_of(
    st.just("admit"),
    st.integers(1, 4),  # tokens that are spent
    st.sampled_from([0.3, 1.0, 20.0, 41.0, 60.0, 61.0, -30.0, -61.0, -70.0]),  # seconds that pass, or are set back
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(requests=4, tokens=9, steps=["admit", 3, 30.0, "admit", 2, 31.0, "admit", 61.0, "admit"])
@given(requests=limits, tokens=limits, steps=st.lists(steps, max_size=40))
def test_both_stores_agree_on_any_sequence(
    in_redis: Redis, requests: int, tokens: int, steps: list[str | int | float]
) -> None:
    memory = Memory()
    in_redis.begin_empty()
    for step in steps:
        if isinstance(step, str):
            one, other = (admit(store, requests=requests, tokens=tokens) for store in (memory, in_redis))
            assert one == other
        elif isinstance(step, int):
            for store in (memory, in_redis):
                store.windows.spend(KEY, step)
        else:
            for store in (memory, in_redis):
                store.let_pass(step)


def test_a_request_must_keep_to_all_its_bounds_and_counts_for_none_if_one_refuses(store: Store) -> None:
    key, account = bound(5, 0), bound(2, 0, "account")
    for left in (1, 0):
        states = store.windows.admit([key, account], UNLIMITED)
        assert [state.requests.remaining for state in states] == [left + 3, left]
    refused = store.windows.admit([key, account], UNLIMITED)
    assert [(state.wait, state.requests.remaining) for state in refused] == [(0, 3), (61, 0)]
    assert admit(store, requests=5).requests.remaining == 2, "the refused request was counted for the key"
