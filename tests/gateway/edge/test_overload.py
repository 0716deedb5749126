"""The rate at which a full worker refuses is limited: clients that retry at once must not take all of its time."""

import socket
from dataclasses import dataclass

import pytest
from gunicorn.config import Config

from gateway.db import pool
from gateway.edge import overload
from gateway.edge.endpoint import at_each_path
from gateway.edge.responses import PlainResponse
from gateway.edge.rules import is_allowed
from gateway.fastpath.http_server import Application, Request
from gateway.server.bounded_request import DeadlineUnreader

ASKED = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


@dataclass
class Clock:
    """Advances only by pauses: everything else takes no time."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def pause(self, seconds: float) -> None:
        self.now += seconds


class Client:
    """Takes all that is sent, in place of a socket."""

    def sendall(self, data: bytes) -> None:
        assert data.startswith(b"HTTP/1.1 503 ")


@dataclass
class Worker:
    wsgi: Application
    alive: bool = True


def test_refusals_are_two_thousand_a_second_and_five_more_for_each_request_that_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, shedding = Clock(), overload.Overload()
    monkeypatch.setattr(overload, "time", clock)
    monkeypatch.setattr(overload, "pause", clock.pause)
    monkeypatch.setattr(pool, "is_full", lambda: True)
    paths = at_each_path({"chat/completions": lambda _: PlainResponse(200, {}, b"")})
    worker = Worker(Application(paths, lambda *_: [], is_ordinary=is_allowed))

    def refused_in_a_second(served_of_ten: int) -> int:
        before, until = shedding.total, clock.now + 1
        while clock.now < until and shedding.total < 20_000:
            assert shedding.shed(worker, request, Client())
            if shedding.total % 10 < served_of_ten:
                shedding.served += 1
        return shedding.total - before

    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(ASKED)
        request = Request(Config(), DeadlineUnreader(ours), ("127.0.0.1", 50000))
        assert refused_in_a_second(0) == pytest.approx(2000, rel=0.03)  # including a burst of 0.02 s
        refused_in_a_second(1)  # the rate adapts to the served requests
        assert refused_in_a_second(1) == pytest.approx(4000, rel=0.03)  # 2,000, and 5 for each of 400
