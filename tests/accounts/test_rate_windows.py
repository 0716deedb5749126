"""The last 60 seconds are counted alike in Redis and in a worker's memory."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from accounts.rate_windows import KeyState, OwnWindows, RateLimits, SharedWindows, WindowState
from gateway.edge.address_limit import UNLIMITED, AddressCheck, Rate
from gateway.errors import TooManyRequests
from gateway.fastpath.redis import SharedStore
from tests.patience import eventually
from tests.servers.redis import PrivateRedis

KEY = "0123"
Past = Mapping[int, int]  # amounts by how many seconds ago


class Windows(Protocol):
    def admit(self, key: str, *, requests: int, tokens: int) -> KeyState: ...

    def spend(self, key: str, tokens: int) -> None: ...


Remember = Callable[[Past, Past], Windows]  # builds windows that have counted requests and tokens in the past


class Clock:
    """Replaces the clock of the worker's memory, and stands still."""

    now = 1_000_000.5

    def time(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("accounts.rate_windows.time", clock)
    return clock


class Own:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, requests: Past, tokens: Past) -> Windows:
        self._windows = OwnWindows()
        now = self._clock.now
        for ago in sorted({*requests, *tokens}, reverse=True):
            self._clock.now = now - ago
            for _ in range(requests.get(ago, 0)):
                self._windows.admit(KEY, RateLimits(10**9, 0))
            if tokens.get(ago):
                self._windows.spend(KEY, tokens[ago])
        self._clock.now = now
        return self

    def admit(self, key: str, *, requests: int, tokens: int) -> KeyState:
        return self._windows.admit(key, RateLimits(requests, tokens))

    def spend(self, key: str, tokens: int) -> None:
        self._windows.spend(key, tokens)


class Shared:
    """Fills Redis as if the requests had arrived in the past."""

    def __init__(self, server: PrivateRedis) -> None:
        self.client = redis.Redis.from_url(server.url)
        self._windows = SharedWindows()

    def __call__(self, requests: Past, tokens: Past) -> Windows:
        self.admit("another", requests=1, tokens=0)  # waits for what the last example has sent without waiting
        self.client.flushdb()
        assert eventually(lambda: self.client.time()[1] < 500_000)  # it must not reach its next second meanwhile
        now, _ = self.client.time()
        for kind, past in (("requests", requests), ("tokens", tokens)):
            if past:
                fields: dict[Any, Any] = {now - ago: amount for ago, amount in past.items()}
                fields |= {"first": now - max(past), "last": now - min(past), "sum": sum(past.values())}
                self.client.hset(f"rate:{{{KEY}}}:{kind}", mapping=fields)
        return self

    def admit(self, key: str, *, requests: int, tokens: int) -> KeyState:
        state = self._windows.admit(key, RateLimits(requests, tokens), UNLIMITED)
        assert state is not None
        return state

    def spend(self, key: str, tokens: int) -> None:
        self._windows.spend(key, tokens, otherwise=lambda: pytest.fail("Redis is away"))


@pytest.fixture
def shared(redis_server: PrivateRedis, opened_store: SharedStore) -> Iterator[Shared]:
    windows = Shared(redis_server)
    yield windows
    windows.client.close()


@pytest.fixture(params=["own", pytest.param("shared", marks=pytest.mark.process)])
def remember(request: pytest.FixtureRequest, clock: Clock) -> Remember:
    remembered: Remember = Own(clock) if request.param == "own" else request.getfixturevalue("shared")
    return remembered


def test_as_many_requests_as_the_limit_are_admitted_and_one_more_is_not(remember: Remember) -> None:
    windows = remember({}, {})
    found = [windows.admit(KEY, requests=3, tokens=0).requests for _ in range(4)]
    assert found == [(2, 61, 0), (1, 61, 0), (0, 61, 0), (0, 61, 61)]


def test_what_is_refused_is_not_counted(remember: Remember) -> None:
    windows = remember({30: 2}, {})
    assert [windows.admit(KEY, requests=2, tokens=0).requests for _ in range(3)] == [(0, 31, 31)] * 3
    assert windows.admit(KEY, requests=3, tokens=0).requests == (0, 61, 0)


def test_a_request_counts_until_sixty_seconds_after_the_end_of_its_second(remember: Remember) -> None:
    assert remember({60: 1}, {}).admit(KEY, requests=1, tokens=0).requests == (0, 1, 1)
    assert remember({61: 1}, {}).admit(KEY, requests=1, tokens=0).requests == (0, 61, 0)
    assert remember({61: 1, 30: 1}, {}).admit(KEY, requests=2, tokens=0).requests == (0, 61, 0)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(pauses=[0.0] * 5 + [59.4] + [0.0] * 5)
@given(pauses=st.lists(st.floats(0, 62), max_size=40))
def test_no_sixty_seconds_hold_more_than_the_budget(clock: Clock, pauses: list[float]) -> None:
    """Each pause precedes a request; the first second is nearly over when it begins."""
    clock.now, windows, admitted = 1_000_000.999, OwnWindows(), []
    for pause in pauses:
        clock.now += pause
        if not windows.admit(KEY, RateLimits(5, 0)).wait:
            admitted.append(clock.now)
    assert all(later - earlier > 60 for earlier, later in zip(admitted, admitted[5:], strict=False))


def test_the_wait_ends_when_the_window_holds_less_than_the_limit(remember: Remember) -> None:
    assert remember({50: 1, 40: 2, 10: 2}, {}).admit(KEY, requests=3, tokens=0).requests == (0, 51, 21)


def test_tokens_are_spent_beyond_what_is_left_and_then_nothing_is_admitted(remember: Remember) -> None:
    windows = remember({}, {})
    assert windows.admit(KEY, requests=0, tokens=100).tokens == (100, 0, 0)
    windows.spend(KEY, 99)
    assert windows.admit(KEY, requests=0, tokens=100).tokens == (1, 61, 0)
    windows.spend(KEY, 5000)
    assert windows.admit(KEY, requests=0, tokens=100).tokens == (0, 61, 61)


def test_a_request_that_the_tokens_refuse_takes_no_request(remember: Remember) -> None:
    windows = remember({}, {20: 100})
    assert windows.admit(KEY, requests=1, tokens=100) == (WindowState(1, 0, 0), WindowState(0, 41, 41))
    assert windows.admit(KEY, requests=1, tokens=101) == (WindowState(0, 61, 0), WindowState(1, 41, 0))


def test_what_has_no_limit_is_not_looked_at(remember: Remember) -> None:
    assert remember({5: 1}, {5: 1}).admit(KEY, requests=0, tokens=0) == (WindowState(0, 0, 0), WindowState(0, 0, 0))


def test_keys_are_counted_apart(remember: Remember) -> None:
    windows = remember({5: 1}, {})
    assert windows.admit("another", requests=1, tokens=0).requests == (0, 61, 0)


def test_a_request_beyond_its_address_limit_takes_nothing_of_the_budgets(shared: Shared) -> None:
    shared({}, {})
    for _ in range(2):
        assert SharedWindows().admit(KEY, RateLimits(9, 9), AddressCheck("192.0.2.9", Rate(2, 60))) is not None
    beyond = AddressCheck("192.0.2.9", Rate(2, 60))
    with pytest.raises(TooManyRequests) as refused:
        SharedWindows().admit(KEY, RateLimits(9, 9), beyond)
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 60
    with pytest.raises(TooManyRequests):
        beyond.check()
    counted = [shared.client.get(name) for name in shared.client.scan_iter("address:*:192.0.2.9")]
    assert counted == [b"3"]  # once for each request, however often it is checked
    assert shared.admit(KEY, requests=9, tokens=9).requests.remaining == 6  # of the two that were admitted and this one


def test_redis_forgets_a_key_that_rests(shared: Shared) -> None:
    windows = shared({}, {})
    windows.spend(KEY, 1)
    windows.admit(KEY, requests=1, tokens=1)
    assert {shared.client.ttl(key) for key in shared.client.scan_iter("rate:*")} == {61}


def test_redis_keeps_no_counter_that_counts_no_more(shared: Shared) -> None:
    shared({70: 1, 65: 2, 61: 3, 3: 4}, {62: 5}).admit(KEY, requests=1, tokens=1)
    counters = {key: shared.client.hgetall(key) for key in shared.client.scan_iter("rate:*")}
    assert [len(fields) for fields in counters.values()] == [4]  # sum, first, last, and the field of 3 seconds ago
    assert counters[f"rate:{{{KEY}}}:requests".encode()][b"sum"] == b"4"


def test_a_worker_forgets_a_key_that_rests(clock: Clock) -> None:
    windows = OwnWindows()
    windows.admit("resting", RateLimits(1, 1))
    windows.spend("resting", 1)
    clock.now += 61
    windows.admit("busy", RateLimits(1, 1))
    clock.now -= 61  # as if it had not happened
    assert windows.admit("resting", RateLimits(1, 1)).requests == (0, 61, 0)


past = st.dictionaries(st.integers(0, 70), st.integers(1, 9), max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=past, tokens=past, rpm=st.integers(0, 20), tpm=st.integers(0, 20))
def test_both_count_alike(shared: Shared, clock: Clock, requests: Past, tokens: Past, rpm: int, tpm: int) -> None:
    shared(requests, tokens)
    own = Own(clock)(requests, tokens)
    for _ in range(3):
        assert own.admit(KEY, requests=rpm, tokens=tpm) == shared.admit(KEY, requests=rpm, tokens=tpm)
        own.spend(KEY, 3)
        shared.spend(KEY, 3)
