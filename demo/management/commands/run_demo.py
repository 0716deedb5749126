"""Does everything that `make run` does once the packages are installed."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from accounts.models import Account
from catalogue.loader import CatalogueError
from demo.content import prepare
from demo.credentials import EMAIL, Credentials, derive
from demo.processes import HOST, Children, DemoFailed, accepts, require_free
from proof import log_key

MODEL = "sim/demo/echo"
START_SECONDS = 30.0
STOP_MARGIN_SECONDS = 15.0  # longer than the drain, since gunicorn waits 10 s longer than its workers


class Command(BaseCommand):
    help = (
        "Runs the demo: migrates, seeds the demo catalogue, creates the demo account, then starts the simulated "
        "provider (PORT + 1) and the gateway (PORT) and prints how to use them. Ctrl-C stops both."
    )
    requires_system_checks: list[str] = []  # `make check` runs them; they would delay every start

    def handle(self, *_args: Any, **_options: Any) -> None:
        try:
            with _signals_as_ctrl_c():
                self._run(settings.PORT)
        except (DemoFailed, CatalogueError) as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"The database refused: {' '.join(str(error).split())}") from None
        except KeyboardInterrupt:
            self.stderr.write("Stopped.")

    def _run(self, port: int) -> None:
        if not 0 < port < 65535:
            raise DemoFailed(f"PORT is a number from 1 to 65534 (the next one is the simulator's), not {port}.")
        for wanted in (port, port + 1):
            require_free(wanted)
        origin = f"http://{HOST}:{port}"
        # The environment of this process, which has read .env, and the variables that both servers must share.
        own = {"BIND": HOST, "PORT": str(port), "DEMO_SIMULATOR": f"{HOST}:{port + 1}"}
        env = {"PUBLIC_URL": origin, **os.environ, **own}
        with Children(settings.GATEWAY_DRAIN_TIMEOUT + STOP_MARGIN_SECONDS) as children:
            # The simulator needs no database, so it starts while this process prepares one.
            children.start("simulator", "-m", "simulator", "--port", str(port + 1), env=env, quiet=True)
            credentials = derive(settings.SECRET_KEY)
            sample = prepare(credentials)
            if log_key.current() is None:
                call_command("log_key", "create", origin=f"{HOST}:{port}/log", stdout=StringIO())
            gunicorn = ("-m", "gunicorn", "--log-level", "warning", "-c", "python:gateway.gunicorn_conf")
            children.start("gateway", *gunicorn, "gateway.wsgi", env=env)
            children.wait_until(lambda: accepts(port + 1) and _is_healthy(port), "The gateway", START_SECONDS)
            self._announce(credentials, origin, env["PUBLIC_URL"], sample)
            children.watch()

    def _announce(self, credentials: Credentials, origin: str, dashboard: str, sample: Account | None) -> None:
        call = {"model": MODEL, "messages": [{"role": "user", "content": "Hello, gateway! Send this sentence back."}]}
        curls = (
            f"{command} {origin}/v1/chat/completions -H 'Authorization: Bearer {credentials.token}'"
            f" -H 'Content-Type: application/json' -d '{json.dumps(body)}'"
            for command, body in (("curl", call), ("curl -N", {**call, "stream": True}))
        )
        lines = (
            f"API key: {credentials.token}",
            f"Dashboard: {dashboard}/ (login {EMAIL}, password {credentials.password})",
            *([f"A month of sample data: {dashboard}/?account={sample.pk}"] if sample else []),
            f"Admin: {dashboard}/admin/ (the same login)",
            "For the examples of README.md and docs/guide.md, in another terminal:",
            f"export KEY={credentials.token} OPENAI_API_KEY={credentials.token} OPENAI_BASE_URL={origin}/v1",
            "Try it:",
            *curls,
            "Ctrl-C stops everything.",
        )
        self.stdout.write("\n".join(lines))
        self.stdout.flush()


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", "/healthz", headers={"Connection": "close"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """Makes SIGTERM end the demo like Ctrl-C, and also SIGINT if a shell has started the demo with SIGINT ignored."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
