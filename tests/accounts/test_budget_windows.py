"""The last 60 seconds as they are counted: in Redis and in a worker's memory alike."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.budget_windows import Admission, Left, OwnWindows, SharedWindows
from tests.patience import eventually
from tests.servers.redis import PrivateRedis

pytestmark = pytest.mark.sqlite_is_enough
KEY = "0123"
Past = Mapping[int, int]  # amounts by how many seconds ago


class Windows(Protocol):
    def admit(self, key: str, *, requests: int, tokens: int) -> Admission: ...

    def spend(self, key: str, tokens: int) -> None: ...


Remember = Callable[[Past, Past], Windows]  # windows that have counted requests and tokens in the past


def own(requests: Past, tokens: Past) -> Windows:
    moment = now = 1_000_000.5
    windows = OwnWindows(clock=lambda: moment)
    for ago in sorted({*requests, *tokens}, reverse=True):
        moment = now - ago
        for _ in range(requests.get(ago, 0)):
            windows.admit(KEY, requests=10**9, tokens=0)
        if tokens.get(ago):
            windows.spend(KEY, tokens[ago])
    moment = now
    return windows


class Shared:
    """What Redis would have counted, had the requests come then."""

    def __init__(self, server: PrivateRedis) -> None:
        self.client = redis.Redis.from_url(server.url)

    def __call__(self, requests: Past, tokens: Past) -> Windows:
        self.client.flushdb()
        self._begin_of_a_second()
        seconds, _ = self.client.time()
        for kind, past in (("requests", requests), ("tokens", tokens)):
            if past:
                counters: dict[Any, Any] = {str(seconds - ago): amount for ago, amount in past.items()}
                self.client.hset(f"budget:{{{KEY}}}:{kind}", mapping=counters)
        return SharedWindows(self.client)

    def _begin_of_a_second(self) -> None:
        """Redis goes by its own clock: a test must not straddle two of its seconds."""
        assert eventually(lambda: self.client.time()[1] < 500_000)


@pytest.fixture(params=["own", "shared"])
def remember(request: pytest.FixtureRequest) -> Remember:
    return own if request.param == "own" else Shared(request.getfixturevalue("redis_server"))


def test_as_many_requests_as_the_limit_are_admitted_and_one_more_is_not(remember: Remember) -> None:
    windows = remember({}, {})
    found = [windows.admit(KEY, requests=3, tokens=0).requests for _ in range(4)]
    assert found == [(2, 60, 0), (1, 60, 0), (0, 60, 0), (0, 60, 60)]


def test_what_is_refused_is_not_counted(remember: Remember) -> None:
    windows = remember({30: 2}, {})
    assert [windows.admit(KEY, requests=2, tokens=0).requests for _ in range(3)] == [(0, 30, 30)] * 3
    assert windows.admit(KEY, requests=3, tokens=0).requests == (0, 60, 0)


def test_a_request_counts_for_exactly_sixty_seconds(remember: Remember) -> None:
    assert remember({59: 1}, {}).admit(KEY, requests=1, tokens=0).requests == (0, 1, 1)
    assert remember({60: 1}, {}).admit(KEY, requests=1, tokens=0).requests == (0, 60, 0)


def test_the_wait_ends_when_the_window_holds_less_than_the_limit(remember: Remember) -> None:
    assert remember({50: 1, 40: 2, 10: 2}, {}).admit(KEY, requests=3, tokens=0).requests == (0, 50, 20)


def test_tokens_are_spent_beyond_what_is_left_and_then_nothing_is_admitted(remember: Remember) -> None:
    windows = remember({}, {})
    assert windows.admit(KEY, requests=0, tokens=100).tokens == (100, 0, 0)
    windows.spend(KEY, 99)
    assert windows.admit(KEY, requests=0, tokens=100).tokens == (1, 60, 0)
    windows.spend(KEY, 5000)
    assert windows.admit(KEY, requests=0, tokens=100).tokens == (0, 60, 60)


def test_a_request_that_the_tokens_refuse_takes_no_request(remember: Remember) -> None:
    windows = remember({}, {20: 100})
    assert windows.admit(KEY, requests=1, tokens=100) == (Left(1, 0, 0), Left(0, 40, 40))
    assert windows.admit(KEY, requests=1, tokens=101) == (Left(0, 60, 0), Left(1, 40, 0))


def test_what_has_no_limit_is_not_looked_at(remember: Remember) -> None:
    assert remember({5: 1}, {5: 1}).admit(KEY, requests=0, tokens=0) == (Left(0, 0, 0), Left(0, 0, 0))


def test_keys_are_counted_apart(remember: Remember) -> None:
    windows = remember({5: 1}, {})
    assert windows.admit("another", requests=1, tokens=0).requests == (0, 60, 0)


def test_redis_forgets_a_key_that_rests(redis_server: PrivateRedis) -> None:
    shared = Shared(redis_server)
    windows = shared({}, {})
    windows.admit(KEY, requests=1, tokens=1)
    windows.spend(KEY, 1)
    assert {shared.client.ttl(key) for key in shared.client.scan_iter()} == {61}


def test_a_worker_forgets_a_key_that_rests() -> None:
    moment = 1_000_000.0
    windows = OwnWindows(clock=lambda: moment)
    windows.admit("resting", requests=1, tokens=1)
    windows.spend("resting", 1)
    moment += 61
    windows.admit("busy", requests=1, tokens=1)
    assert set(windows.kept()) == {"busy"}


past = st.dictionaries(st.integers(0, 70), st.integers(1, 9), max_size=8)


@settings(max_examples=60, deadline=None)
@given(requests=past, tokens=past, rpm=st.integers(0, 20), tpm=st.integers(0, 20))
def test_both_count_alike(redis_server: PrivateRedis, requests: Past, tokens: Past, rpm: int, tpm: int) -> None:
    shared = Shared(redis_server)(requests, tokens)
    mine = own(requests, tokens)
    for _ in range(3):
        assert mine.admit(KEY, requests=rpm, tokens=tpm) == shared.admit(KEY, requests=rpm, tokens=tpm)
        mine.spend(KEY, 3)
        shared.spend(KEY, 3)
