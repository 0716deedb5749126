"""Serves requests: finds the endpoint, counts the call and delivers its answer."""

import argparse
import contextlib
import resource
import signal
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

import gevent
import orjson
from gevent.server import StreamServer

from simulator.anthropic import MessageCount, Messages
from simulator.behaviour import parse
from simulator.call import Call
from simulator.delivery import DIALECTS, OPENAI, SimulatedEndpoint, deliver, refuse, send_json
from simulator.http import (
    BrokenRequestError,
    CallerGoneError,
    Connection,
    HungUpError,
    Reply,
    Request,
    let_go,
    send_held,
)
from simulator.openai import Chat, Embeddings, Text
from simulator.responses import Responses

HOST = "127.0.0.1"
DEFAULT_PORT = 8001
# Enough for a thousand streams that are opened at the same moment.
_BACKLOG = 2048
_ENDPOINTS: Mapping[str, SimulatedEndpoint] = {
    "/chat/completions": Chat(),
    "/completions": Text(),
    "/embeddings": Embeddings(),
    "/responses": Responses(),
    "/messages": Messages(),
    "/messages/count_tokens": MessageCount(),
}


@dataclass(slots=True)
class Counts:
    """Counts `calls` received, those `cut` by their caller before the answer was complete, and those `open` now."""

    calls: int = 0
    cut: int = 0
    open: int = 0


class Stats:
    """Holds the counts of one running simulator. Greenlets never switch inside an update, so there is no lock."""

    def __init__(self) -> None:
        self._total = Counts()
        self._by_model: defaultdict[str, Counts] = defaultdict(Counts)
        self.markers: Counter[str] = Counter()  # the number of calls with each marker

    @contextlib.contextmanager
    def call(self, model: str) -> Iterator[None]:
        """Counts one call from its arrival to its end."""
        both = (self._total, self._by_model[model])
        for counts in both:
            counts.calls += 1
            counts.open += 1
        try:
            yield
        except CallerGoneError:
            for counts in both:
                counts.cut += 1
            raise
        finally:
            for counts in both:
                counts.open -= 1

    def read(self, model: str | None) -> dict[str, int]:
        """Returns the counts of one model name, or of all calls."""
        return asdict(self._total if model is None else self._by_model.get(model, Counts()))

    def reset(self, model: str | None) -> None:
        """Resets the counts of one model name or of all. Open calls stay counted as open."""
        if model is None:
            self.markers.clear()
        for counts in [self._total, *self._by_model.values()] if model is None else [self._by_model[model]]:
            counts.calls = counts.cut = 0


class Simulator:
    """Listens as a simulated provider."""

    def __init__(self, host: str, port: int, dialects: tuple[str, ...]) -> None:
        self._dialects = dialects
        self._stats = Stats()
        self._server = StreamServer((host, port), self._serve_caller, backlog=_BACKLOG)
        self._server.start()
        self.url = f"http://{host}:{self._server.server_port}/v1"

    def run(self) -> None:
        """Answers calls until `stop`; open calls end with the process."""
        self._server.serve_forever()

    def stop(self) -> None:
        """Lets `run` return."""
        self._server.stop()

    def _serve_caller(self, sock: socket.socket, _address: object) -> None:
        with contextlib.suppress(CallerGoneError, HungUpError, OSError):
            connection = Connection(sock)
            try:
                keeps_alive = True
                while keeps_alive:
                    request = connection.read_request()
                    reply = Reply(connection, request)
                    self._answer(request, reply)
                    keeps_alive = reply.keeps_alive
            except BrokenRequestError as error:
                reply = Reply(connection, Request(keeps_alive=False))
                refuse(reply, OPENAI, f"The request is not HTTP/1.1: {error}")

    def _answer(self, request: Request, reply: Reply) -> None:
        path = request.path
        if path.startswith("/at/"):  # a name before the path, for tests that need different base URLs
            path = "/" + path.removeprefix("/at/").partition("/")[2]
        path = path.removeprefix("/v1")
        endpoint = _ENDPOINTS.get(path)
        if path == "/stats/markers":
            send_json(reply, 200, self._stats.markers)
        elif path == "/surplus" and request.method == "POST":
            send_json(reply, 200, {"sent": send_held()})
        elif path == "/let-go" and request.method == "POST":
            let_go(request.query["model"])
            send_json(reply, 200, {})
        elif path in {"/stats", "/stats/reset"}:
            self._answer_stats(request, reply, resets=path.endswith("reset"))
        elif endpoint is None or endpoint.dialect not in self._dialects:
            message = f"Unknown request URL: {request.method} {request.path}."
            refuse(reply, self._dialects[0], message, status=404)
        elif request.method != "POST":
            refuse(reply, endpoint.dialect, f"Not allowed to {request.method} on {request.path}.", status=405)
        else:
            self._answer_call(request, endpoint, reply)

    def _answer_stats(self, request: Request, reply: Reply, *, resets: bool) -> None:
        model = request.query.get("model")
        if resets:
            if request.method != "POST":
                refuse(reply, self._dialects[0], "Counts are reset with POST.", status=405)
                return
            self._stats.reset(model)
        send_json(reply, 200, self._stats.read(model))

    def _answer_call(self, request: Request, endpoint: SimulatedEndpoint, reply: Reply) -> None:
        try:
            body = orjson.loads(request.body)
        except orjson.JSONDecodeError:
            body = None
        model = body.get("model") if isinstance(body, dict) else None
        if not isinstance(model, str) or not model:
            refuse(reply, endpoint.dialect, "The body must be a JSON object with a model.", "model")
            return
        with self._stats.call(model):
            try:
                behaviour = parse(model)
            except ValueError as error:
                refuse(reply, endpoint.dialect, f"The simulator does not know how: {error}.", "model")
                return
            call = Call(request, body, model, behaviour, int(time.time()))
            if call.marker is not None:
                self._stats.markers[str(call.marker)] += 1
            deliver(call, endpoint, reply)


def serve(port: int, dialect: str | None, announce: Callable[[str], object]) -> None:
    """Listens, announces that in one line, and answers until SIGTERM or SIGINT. Raises OSError if the port is taken."""
    dialects = (dialect,) if dialect else DIALECTS
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    simulator = Simulator(HOST, port, dialects)
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, simulator.stop)
    announce(f"Simulated provider on {simulator.url} ({', '.join(dialects)})")
    simulator.run()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options, which are the same with and without Django."""
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"default {DEFAULT_PORT}; 0 picks a free one")
    parser.add_argument("--dialect", choices=DIALECTS, help="the only dialect to speak; default: both")


def main() -> None:
    """Runs `python -m simulator` until it is stopped. Exits with 1 and one line if the port is taken."""
    parser = argparse.ArgumentParser(prog="python -m simulator", description="Run the simulated provider.")
    add_arguments(parser)
    options = parser.parse_args()
    try:
        serve(options.port, options.dialect, lambda line: print(line, flush=True))  # noqa: T201  # its announcement
    except OSError as error:
        sys.exit(f"The simulated provider cannot listen: {error}")
