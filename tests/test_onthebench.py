"""The manifest for the field's neutral bench (bench/onthebench) works as its rig uses it.

The simulator is the mock.
"""

import contextlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.servers.process import ROOT, ServerProcess, accepts, free_port
from tests.servers.simulator import Simulator

MANIFEST = ROOT / "bench" / "onthebench"
DEFINITION: dict[str, Any] = json.loads((MANIFEST / "definition.json").read_text())
START_SECONDS = 120


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Makes a folder in which PostgreSQL's own user can read its data, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="onthebench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="module")
def served(simulator: Simulator) -> Iterator[str]:
    port = free_port(2)  # serve.sh gives the second to PostgreSQL
    with scratch_folder() as scratch:
        process = start(simulator, scratch, port)
        try:
            process.wait_until(lambda: accepts(port), timeout=START_SECONDS)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stop(timeout=30)


def start(simulator: Simulator, scratch: Path, port: int) -> ServerProcess:
    """Does what the rig does with a manifest: copies it, fills in its templates and starts its binary."""
    folder = scratch / DEFINITION["name"]
    shutil.copytree(MANIFEST, folder)
    (folder / "src").symlink_to(ROOT)
    (folder / "venv").symlink_to(ROOT / ".venv")
    known: dict[str, Any] = {"GW_PORT": port, "GW_AUTH": DEFINITION["auth"], "GW_DIR": folder}
    known["MOCK_PORT"] = urlsplit(simulator.url).port
    for each in DEFINITION["config_files"]:
        (folder / each["output"]).write_text(_rendered(folder / each["template"], known))
    lines = [line for line in _rendered(folder / "env", known).splitlines() if not line.startswith("#")]
    own = dict(line.split("=", 1) for line in lines)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR")}
    return ServerProcess([str(folder / DEFINITION["launch"]["binary"][0])], log=folder / "log", env={**kept, **own})


def _rendered(template: Path, known: dict[str, Any]) -> str:
    text = template.read_text()
    for name, value in known.items():
        text = text.replace("{" + name + "}", str(value))
    return text


@pytest.mark.campaign
@pytest.mark.parametrize("column", ["", "-responses", "-anthropic"])
@pytest.mark.parametrize(
    ("row", "path", "asked"),
    [
        (0, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 16}),
        (1, "/v1/responses", {"input": "hi", "max_output_tokens": 16}),
        (2, "/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 16}),
    ],
)
def test_it_serves_the_pairs_of_apis_that_it_declares_and_no_other(
    served: str, row: int, path: str, asked: dict[str, Any], column: str
) -> None:
    position = ["", "-responses", "-anthropic"].index(column)
    headers = {"Authorization": f"Bearer {DEFINITION['auth']}"}
    reply = requests.post(
        served + path, json={"model": DEFINITION["model"] + column, **asked}, headers=headers, timeout=30
    )
    assert (reply.status_code == 200) is (DEFINITION["matrix"][row][position] == "1"), reply.text
    if reply.status_code == 200:
        assert "hi" in reply.text


@pytest.mark.campaign
def test_it_ends_at_once_if_its_database_cannot_start(simulator: Simulator) -> None:
    port = free_port(2)
    with socket.create_server(("127.0.0.1", port + 1)), scratch_folder() as scratch:
        process = start(simulator, scratch, port)
        try:
            assert process.wait(START_SECONDS) == 1
            assert f"PostgreSQL ended before it accepted a connection on port {port + 1}" in process.log
        finally:
            process.stop()


def test_every_setting_says_why_it_is_there() -> None:
    claimed = {line.split()[0] for line in (MANIFEST / "why").read_text().splitlines() if not line.startswith("#")}
    lines = (MANIFEST / "env").read_text().splitlines()
    assert {line.partition("=")[0] for line in lines if not line.startswith("#")} <= claimed
