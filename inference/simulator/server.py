"""The server: finds the endpoint of a request, counts the call and has it answered."""

import argparse
import resource
import signal
import socket
import time
from collections.abc import Callable, Mapping

import gevent
import orjson
from gevent.server import StreamServer

from inference.simulator import errors
from inference.simulator.anthropic import Messages
from inference.simulator.behaviour import parse
from inference.simulator.call import Call, Json
from inference.simulator.delivery import Endpoint, deliver
from inference.simulator.embeddings import Embeddings
from inference.simulator.http import BrokenRequestError, CallerGoneError, Connection, HungUpError, Request
from inference.simulator.openai import Chat, Completions, Text
from inference.simulator.reply import Reply
from inference.simulator.stats import Stats

HOST = "127.0.0.1"
DEFAULT_PORT = 8001
DIALECTS = (errors.OPENAI, errors.ANTHROPIC)
# A thousand streams may be opened at the same moment.
_BACKLOG = 2048
_JSON = {"content-type": "application/json"}
_ENDPOINTS: Mapping[str, Endpoint] = {
    "/chat/completions": Completions(Chat()),
    "/completions": Completions(Text()),
    "/embeddings": Embeddings(),
    "/messages": Messages(),
}


class Simulator:
    """A simulated provider that listens."""

    def __init__(self, host: str, port: int, dialects: tuple[str, ...]) -> None:
        self._dialects = dialects
        self._stats = Stats()
        self._server = StreamServer((host, port), self._serve_caller, backlog=_BACKLOG)
        self._server.start()
        self.url = f"http://{host}:{self._server.server_port}/v1"

    def run(self) -> None:
        """Answer until `stop`; open calls end with the process."""
        self._server.serve_forever()

    def stop(self) -> None:
        """Let `run` return."""
        self._server.stop()

    def _serve_caller(self, sock: socket.socket, _address: object) -> None:
        """Answer the requests of one connection, one after the other."""
        try:
            connection = Connection(sock)
            while (request := connection.read_request()) is not None:
                reply = Reply(connection, request)
                self._answer(request, reply)
                if not reply.keeps_alive:
                    return
        except BrokenRequestError as error:
            connection.send(_bad_request(str(error)))
        except (CallerGoneError, HungUpError, OSError):
            return  # nobody is left to be told

    def _answer(self, request: Request, reply: Reply) -> None:
        path = _without_prefix(request.path)
        endpoint = _ENDPOINTS.get(path)
        if path in {"/stats", "/stats/reset"}:
            self._answer_stats(request, reply, resets=path.endswith("reset"))
        elif endpoint is None or endpoint.dialect not in self._dialects:
            _say(
                reply, 404, errors.refusal(self._dialects[0], f"Unknown request URL: {request.method} {request.path}.")
            )
        elif request.method != "POST":
            _say(reply, 405, errors.refusal(endpoint.dialect, f"Not allowed to {request.method} on {request.path}."))
        else:
            self._answer_call(request, endpoint, reply)

    def _answer_stats(self, request: Request, reply: Reply, *, resets: bool) -> None:
        model = request.query.get("model")
        if resets and request.method != "POST":
            _say(reply, 405, errors.refusal(self._dialects[0], "Counts are reset with POST."))
            return
        if resets:
            self._stats.reset(model)
        _say(reply, 200, self._stats.read(model))

    def _answer_call(self, request: Request, endpoint: Endpoint, reply: Reply) -> None:
        body = _object(request.body)
        model = body.get("model")
        if not isinstance(model, str) or not model:
            _say(reply, 400, errors.refusal(endpoint.dialect, "The body must be a JSON object with a model.", "model"))
            return
        with self._stats.call(model):
            try:
                behaviour = parse(model)
            except ValueError as error:
                _say(
                    reply, 400, errors.refusal(endpoint.dialect, f"The simulator does not know how: {error}.", "model")
                )
                return
            deliver(Call(request, body, model, behaviour, int(time.time())), endpoint, reply)


def serve(port: int, dialect: str | None, announce: Callable[[str], object]) -> None:
    """Listen, say so in one line, and answer until SIGTERM or SIGINT. OSError where the port is taken."""
    dialects = (dialect,) if dialect else DIALECTS
    _allow_many_connections()
    simulator = Simulator(HOST, port, dialects)
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, simulator.stop)
    announce(f"Simulated provider on {simulator.url} ({', '.join(dialects)})")
    simulator.run()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options, the same with and without Django."""
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"default {DEFAULT_PORT}; 0 picks a free one")
    parser.add_argument("--dialect", choices=DIALECTS, help="speak this one only; default: both")


def _allow_many_connections() -> None:
    """Raise the limit of open files as far as the process may by itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _without_prefix(path: str) -> str:
    """Drop `/v1`, and `/at/NAME` before it: an address with a name in it, for base URLs that differ."""
    if path.startswith("/at/"):
        path = "/" + path.removeprefix("/at/").partition("/")[2]
    return path.removeprefix("/v1")


def _object(body: bytes) -> Json:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _bad_request(message: str) -> bytes:
    body = orjson.dumps(errors.refusal(errors.OPENAI, message))
    head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


def _say(reply: Reply, status: int, body: Json) -> None:
    reply.whole(status, _JSON, orjson.dumps(body))
