"""All greenlets of a worker share one connection to Redis: replies are in order, and no reply is awaited in vain."""

import logging
import re
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import gevent
import pytest
import redis
from gevent import get_hub
from pytest_django import Settings

from gateway.db import outages
from gateway.fastpath import redis as module
from gateway.fastpath.redis import Script, SharedStore
from tests.patience import PATIENCE_SECONDS
from tests.servers.redis import PrivateRedis

ECHO = Script("return redis.status_reply(ARGV[1])")
COUNT = Script("return redis.call('INCRBY', KEYS[1], ARGV[1])")


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the pause between tries, and makes a reply overdue after half a second."""
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.3)
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)


@pytest.fixture
def opened_store(redis_server: PrivateRedis, settings: Settings) -> Iterator[SharedStore]:
    """Opens a store of the test's own, because a store logs one failure a minute, whatever other tests it served."""
    with opened(settings, redis_server.url) as store:
        yield store


def echo(store: SharedStore, word: bytes) -> bytes | None:
    return store.send(ECHO, b"key", word).wait()


def is_back(store: SharedStore) -> bool:
    """Tells whether the store works again within some tries."""
    for _ in range(50):
        if echo(store, b"back") is not None:
            return True
        gevent.sleep(0.1)
    return False


def comes(condition: Callable[[], bool]) -> bool:
    """Tells whether the condition becomes true while other greenlets run."""
    with gevent.Timeout(PATIENCE_SECONDS, False):
        while not condition():
            gevent.sleep(0.02)
    return condition()


def refused(client: "redis.Redis") -> int:
    """Returns how many commands Redis refused for lack of memory."""
    return int(client.info("errorstats").get("errorstat_OOM", {"count": 0})["count"])


AWAY = "Redis is away and each worker counts limits alone"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_every_greenlet_gets_its_own_reply(opened_store: SharedStore) -> None:
    def ask(number: int) -> bool:
        words = [b"%d-%d" % (number, turn) for turn in range(50)]
        return all(echo(opened_store, word) == b"+" + word for word in words)

    greenlets = [gevent.spawn(ask, number) for number in range(100)]
    gevent.joinall(greenlets, raise_error=True)
    assert all(greenlet.value for greenlet in greenlets)


def test_replies_may_be_awaited_late_in_any_order_or_never(opened_store: SharedStore) -> None:
    replies = [opened_store.send(ECHO, b"key", b"%d" % number) for number in range(10)]
    assert [reply.wait() for reply in reversed(replies[::2])] == [b"+8", b"+6", b"+4", b"+2", b"+0"]
    assert replies[2].wait() == b"+2"
    assert echo(opened_store, b"after") == b"+after"


def test_a_greenlet_that_is_killed_while_it_waits_takes_nobodys_reply(opened_store: SharedStore) -> None:
    killed = gevent.spawn(echo, opened_store, b"killed")
    waiting = gevent.spawn(echo, opened_store, b"waiting")
    gevent.spawn(killed.kill)
    assert waiting.get() == b"+waiting"


def test_a_command_of_any_size_is_written_whole(opened_store: SharedStore) -> None:
    """The command is larger than a socket takes at once."""
    words = [b"x" * 5_000_000, b"small", b"y" * 5_000_000]
    replies = [opened_store.send(Script("return #ARGV[1]"), b"key", word) for word in words]
    assert [reply.wait() for reply in replies] == [b":5000000", b":5", b":5000000"]


def test_without_a_redis_no_reply_comes_and_what_was_to_be_counted_is_counted_otherwise(settings: Settings) -> None:
    settings.SHARED_CACHE_URL = None
    store = SharedStore()
    store.open()
    counted: list[int] = []
    assert echo(store, b"word") is None
    store.send(COUNT, b"key", b"5", otherwise=lambda: counted.append(5))
    assert counted == [5]


@pytest.mark.usefixtures("patience")
def test_a_redis_that_restarts_is_used_again_at_once(
    opened_store: SharedStore, redis_server: PrivateRedis, caplog: pytest.LogCaptureFixture
) -> None:
    redis_server.restart()
    assert is_back(opened_store)
    assert echo(opened_store, b"word") == b"+word"
    assert len(warnings(caplog)) in (0, 2)  # lost and back, unless the first try was too early


@pytest.mark.usefixtures("patience")
def test_a_redis_that_has_lost_the_scripts_gets_them_again(
    opened_store: SharedStore, redis_server: PrivateRedis, caplog: pytest.LogCaptureFixture
) -> None:
    assert echo(opened_store, b"word") == b"+word"
    redis.Redis.from_url(redis_server.url).script_flush()
    assert is_back(opened_store)
    assert warnings(caplog) == []


@pytest.mark.usefixtures("patience")
def test_a_redis_that_freezes_is_noticed_without_a_request(
    opened_store: SharedStore, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_SECONDS", 0.2)
    assert echo(opened_store, b"here") == b"+here"
    with redis_server.frozen():
        assert comes(lambda: opened_store.is_away)
    assert is_back(opened_store)


@pytest.mark.usefixtures("patience")
def test_a_connection_whose_end_is_found_by_a_check_is_lost_once(
    opened_store: SharedStore,
    redis_server: PrivateRedis,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a worker was busy, its next check may come before the hub notices the end, and is then due to ask."""
    monkeypatch.setattr(module, "ASK_SECONDS", 0.0)
    lost = opened_store._connection
    assert lost is not None
    redis.Redis.from_url(redis_server.url).client_kill_filter(_type="normal", skipme=True)
    select.select([lost._socket], [], [])
    get_hub().loop.run_callback(lost._look)
    assert comes(lambda: opened_store._connection is not lost)
    assert is_back(opened_store)
    assert warnings(caplog) == []


@pytest.mark.usefixtures("patience")
def test_a_redis_that_is_full_counts_as_away_until_it_has_room(
    opened_store: SharedStore, redis_server: PrivateRedis, caplog: pytest.LogCaptureFixture
) -> None:
    client, counted = redis.Redis.from_url(redis_server.url), list[int]()
    client.config_set("maxmemory", 1)
    try:
        replies = [opened_store.send(COUNT, b"full", b"1", otherwise=lambda: counted.append(1)) for _ in range(3)]
        assert [reply.wait() for reply in replies] == [None] * 3
        before = refused(client)
        assert comes(lambda: refused(client) > before + 1), "the refused commands are not tried again"
    finally:
        client.config_set("maxmemory", 0)
    assert counted == [1] * 3
    assert warnings(caplog) == [f"{AWAY}: OOM"]
    assert is_back(opened_store)
    began, ended = warnings(caplog)
    assert began == f"{AWAY}: OOM"
    assert re.fullmatch(rf"over after \d+ s: {AWAY}", ended)


class SlowClock:
    """Returns a time half a minute later at each call."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 31.0
        return self.now


@pytest.mark.usefixtures("patience")
def test_a_redis_that_stays_away_is_a_line_a_minute(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "time", SlowClock())
    with opened(settings, "redis://127.0.0.1:1"):  # a port without a server
        assert comes(lambda: len(warnings(caplog)) > 1)
    first, second, *_later = warnings(caplog)
    assert first == f"{AWAY}: ConnectionError"
    assert second == f"{AWAY}, for 62 s and 3 times: ConnectionError"


Answer = Callable[[socket.socket, bytes], None]  # answers the commands that a server has received


@contextmanager
def odd_redis(answer: Answer) -> Iterator[str]:
    """Runs a server that accepts connections and the probe, and leaves commands to `answer`; returns its URL."""
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                if b"gateway:probe" in data or b"SETINFO" in data:
                    connection.sendall(b"+OK\r\n")
                else:
                    answer(connection, data)

    def accept() -> None:
        while True:
            try:
                connections.append(listener.accept()[0])
            except OSError:
                return
            threading.Thread(target=serve, args=(connections[-1],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def opened(settings: Settings, url: str) -> Iterator[SharedStore]:
    settings.SHARED_CACHE_URL = url
    store = SharedStore()
    store.open()
    yield store
    store.close()


@pytest.mark.usefixtures("patience")
def test_a_reply_that_never_comes_is_not_waited_for_and_loses_nothing(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    with odd_redis(lambda _connection, _data: None) as url, opened(settings, url) as store:
        store.send(COUNT, b"key", b"7", otherwise=lambda: counted.append(7))
        waiting = [gevent.spawn(echo, store, b"word") for _ in range(20)]
        gevent.joinall(waiting, timeout=30)
        assert [greenlet.value for greenlet in waiting] == [None] * 20
        assert all(greenlet.ready() for greenlet in waiting)
        assert counted == [7]
        assert warnings(caplog) == [f"{AWAY}: no reply"]
        monkeypatch.setattr(module, "WAIT_SECONDS", 1000.0)
        with gevent.Timeout(PATIENCE_SECONDS):
            assert echo(store, b"word") is None  # nothing else waits


@pytest.mark.parametrize("sent", [b"", b"+fir", b"+first\r\n+sec", b"+first\r\n-ERR broken\r\n"], ids=repr)
@pytest.mark.usefixtures("patience")
def test_a_connection_that_ends_in_the_middle_of_replies_gives_those_that_came(settings: Settings, sent: bytes) -> None:
    def cut(connection: socket.socket, data: bytes) -> None:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_RDWR)

    counted: list[int] = []
    with odd_redis(cut) as url, opened(settings, url) as store:
        first = store.send(ECHO, b"key", b"first", otherwise=lambda: counted.append(1))
        second = store.send(ECHO, b"key", b"second", otherwise=lambda: counted.append(2))
        came = b"first\r\n" in sent
        assert [first.wait(), second.wait()] == [b"+first" if came else None, None]
        assert counted == ([2] if came else [1, 2])


@pytest.mark.usefixtures("patience")
def test_replies_in_pieces_are_put_together(settings: Settings) -> None:
    def drip(connection: socket.socket, data: bytes) -> None:
        for number in range(2):
            for byte in b"+%d\r\n" % number:
                connection.sendall(bytes([byte]))
                threading.Event().wait(0.001)  # so that they are not read together

    with odd_redis(drip) as url, opened(settings, url) as store:
        replies = [store.send(ECHO, b"key", b"word") for _ in range(2)]
        assert [reply.wait() for reply in replies] == [b"+0", b"+1"]


@pytest.mark.usefixtures("patience")
def test_unexpected_lines_from_redis_are_dropped(settings: Settings) -> None:
    def more(connection: socket.socket, data: bytes) -> None:
        connection.sendall(b"+word\r\n+another\r\n:1\r\n")

    with odd_redis(more) as url, opened(settings, url) as store:
        assert echo(store, b"word") == b"+word"
        gevent.sleep(0.05)
        assert echo(store, b"word") == b"+word"
