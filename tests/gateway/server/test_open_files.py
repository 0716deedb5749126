"""A worker with a low limit of open files serves what it can, and the rest a little later."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chat import PATH, question
from tests.conftest import OpenAccount, StartGateway
from tests.rawhttp import connect, read_response
from tests.servers.gateway import GatewayServer

FILES = 256


@pytest.fixture(scope="module")
def narrow(start_shared_gateway: StartGateway) -> GatewayServer:
    """Starts a gateway with a low limit of open files, both soft and hard."""
    command = GatewayServer.command
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            GatewayServer, "command", lambda self: ["sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh", *command(self)]
        )
        return start_shared_gateway()


def test_idle_connections_make_room_for_others(narrow: GatewayServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(FILES):
            raw = stack.enter_context(connect(narrow))
            answers = stack.enter_context(raw.makefile("rb"))
            raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_response(answers).status_code == 200


def test_more_requests_at_once_than_there_are_files_are_answered(
    narrow: GatewayServer, open_account: OpenAccount
) -> None:
    customer = open_account(narrow)

    def status(_: int) -> int:
        # Each request has a connection of its own, because a kept one may be closed just when it is sent.
        return customer.http.post(PATH, json=question("echo"), headers={"Connection": "close"}, timeout=120).status_code

    with ThreadPoolExecutor(FILES) as pool:
        assert set(pool.map(status, range(FILES))) <= {200, 503}
