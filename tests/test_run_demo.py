"""`make run` works as its reader uses it: start, paste what is printed, stop, start again."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest
import requests

from demo.credentials import derive
from gateway.installation import ensure_secret_key
from tests.patience import eventually
from tests.servers.manage import Completed, ManageHelper, run_manage
from tests.servers.process import ROOT, accepts, free_port
from tests.servers.programs import find_program

SECRET = "a secret key of this test only"
START_SECONDS = 60.0  # an empty database is migrated, on a machine that runs other tests too


class Demo:
    """Runs `manage.py run_demo`; it has started when everything is printed."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.port = int(env["PORT"])
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        with self._stdout.open("w") as stdout, self._stderr.open("w") as stderr:
            self._popen = subprocess.Popen(
                [sys.executable, "manage.py", "run_demo"],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self.lines = self._announced()

    def _announced(self) -> list[str]:
        deadline = time.monotonic() + START_SECONDS
        while not (printed := self._stdout.read_text()).endswith("Ctrl-C stops everything.\n"):
            if self._popen.poll() is not None or time.monotonic() > deadline:
                self._popen.kill()
                pytest.fail(f"it did not start:\n{self._stderr.read_text()}")
            time.sleep(0.02)
        return printed.splitlines()

    @property
    def token(self) -> str:
        return next(line.removeprefix("API key: ") for line in self.lines if line.startswith("API key: "))

    @property
    def curls(self) -> list[str]:
        return [line for line in self.lines if line.startswith("curl ")]

    @property
    def login(self) -> tuple[str, str]:
        found = re.search(r"\(login (\S+), password (\S+)\)", "\n".join(self.lines))
        assert found is not None
        return found[1], found[2]

    def children(self) -> list[int]:
        listing = Path(f"/proc/{self._popen.pid}/task/{self._popen.pid}/children").read_text()
        return [int(pid) for pid in listing.split()]

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Stops it, and returns its exit status and what it wrote to stderr."""
        self.send(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        return self._popen.wait(30), self._stderr.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen.poll() is None:
            self.end()


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Makes an environment with two ports and an empty SQLite database, which `make run` uses too."""
    folder = tmp_path_factory.mktemp("demo")
    own = {
        "PORT": str(free_port(2)),
        "SECRET_KEY": SECRET,
        "DATABASE_URL": f"sqlite:///{folder / 'demo.sqlite3'}",
        "GATEWAY_SPOOL_DIR": str(folder / "spool"),
        "LOG_KEY_FILE": str(folder / "log_key"),
    }
    return {key: value for key, value in os.environ.items() if key != "PUBLIC_URL"} | own


def run_demo(env: dict[str, str], folder: Path) -> Completed:
    """Runs a demo that ends at once."""
    with ManageHelper(env, folder / "manage.log") as helper:
        return helper.run("run_demo")


def paste(line: str) -> str:
    find_program(line.split(maxsplit=1)[0])
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=30, check=True)  # noqa: S602
    return done.stdout


def gone(port: int) -> bool:
    """Tells whether both servers have ended."""
    return not accepts(port) and not accepts(port + 1)


@pytest.mark.long
@pytest.mark.process
def test_the_printed_lines_work_and_a_second_run_prints_the_same(env: dict[str, str], tmp_path: Path) -> None:
    """A key that was deleted and a password that was changed in between are restored.

    The first demo is told to stop, the second is killed.
    """
    with Demo(env, tmp_path) as first:
        plain, streamed = first.curls
        answer = json.loads(paste(plain))
        assert answer["model"] == "sim/demo/echo/global"
        assert answer["usage"]["remaining_balance"] < 100
        assert paste(streamed).rstrip().endswith("data: [DONE]")
        assert "demo" in dashboard(first)
        (sample,) = (line.split(": ", 1)[1] for line in first.lines if line.startswith("A month of sample data: "))
        assert "search-index" in dashboard(first, sample)  # one of its keys; the newest requests vary by the hour
        with ManageHelper(env, tmp_path / "manage.log") as helper:
            helper.run("delete_key", "demo", "--name", "demo").ok()
            change = "from accounts.models import User; u = User.objects.get(); u.set_password('other'); u.save()"
            helper.run("shell", "-c", change).ok()
        assert first.end(signal.SIGTERM)[0] == 0
    assert gone(first.port)

    with Demo(env, tmp_path) as second:
        assert second.lines == first.lines
        balance = json.loads(paste(second.curls[0]))["usage"]["remaining_balance"]
        assert balance < answer["usage"]["remaining_balance"]
        assert "demo" in dashboard(second)
        second.end(signal.SIGKILL)
    assert eventually(lambda: gone(second.port)), "a demo that is killed leaves nothing running"
    assert "0 mismatches" in run_manage(env, "verify_ledger").ok()


@pytest.mark.long
@pytest.mark.process
def test_a_child_that_dies_ends_the_demo(env: dict[str, str], tmp_path: Path) -> None:
    with Demo(env, tmp_path) as demo:
        simulator = demo.children()[0]
        os.kill(simulator, signal.SIGKILL)
        code, stderr = demo.wait()
    assert code == 1
    assert "The simulator ended by itself" in stderr
    assert gone(demo.port)


@pytest.mark.parametrize("offset", [0, 1])
def test_a_port_in_use_is_one_clear_line_and_nothing_is_started(
    env: dict[str, str], tmp_path: Path, offset: int
) -> None:
    taken = int(env["PORT"]) + offset
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", taken))
        occupant.listen()
        done = run_demo(env, tmp_path)
    assert done.code == 1
    assert done.stdout == ""
    assert done.stderr == f"CommandError: Port {taken}: address already in use. Choose another with PORT=<number>.\n"


def test_a_port_without_a_next_one_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    done = run_demo({**env, "PORT": "65535"}, tmp_path)
    assert (done.code, done.stdout) == (1, "")
    assert "1 to 65534" in done.stderr


def test_token_and_password_are_derived_and_differ_by_key() -> None:
    credentials = derive(SECRET)
    assert re.fullmatch(r"sk-gw-[A-Za-z0-9_-]{43}", credentials.token)
    assert credentials == derive(SECRET)
    assert credentials.token != derive(SECRET + "x").token
    assert credentials.password not in credentials.token
    assert credentials.token not in repr(credentials)


def test_the_secret_key_is_made_once_and_for_the_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECRET_KEY")
    path = tmp_path / "var" / "secret_key"
    ensure_secret_key(path)
    content = path.read_text()
    ensure_secret_key(path)
    assert path.read_text() == content
    assert len(content.strip()) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["secret_key"]


def test_no_file_is_made_if_the_environment_has_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", SECRET)
    ensure_secret_key(tmp_path / "secret_key")
    assert list(tmp_path.iterdir()) == []


def dashboard(demo: Demo, address: str = "") -> str:
    """Signs in with what was printed, and returns the overview or the page at this address."""
    origin, (email, password) = f"http://127.0.0.1:{demo.port}", demo.login
    with requests.Session() as browser:
        browser.trust_env = False
        browser.get(f"{origin}/login", timeout=10)
        form = {"username": email, "password": password, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
        page = browser.post(f"{origin}/login", form, timeout=10)
        assert page.url == f"{origin}/"
        page = browser.get(address, timeout=10) if address else page
    assert page.ok
    return page.text
