"""Runs every snippet of docs/guide.md, in curl, Python and Node, and compares what it prints with the guide."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from catalogue.loader.files import DATA
from tests.chat import PATH
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.servers.gateway import GatewayServer
from tests.servers.node import installed
from tests.servers.process import ROOT
from tests.servers.programs import find_program
from tests.servers.simulator import Simulator

BLOCK = re.compile(r"^```(sh|python|javascript|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def sections() -> list[tuple[str, dict[str, str]]]:
    """Returns the heading of each section with snippets, and its snippets by language."""
    _, *parts = SECTION.split((ROOT / "docs" / "guide.md").read_text())
    found = [(heading, dict(BLOCK.findall(text))) for heading, text in zip(parts[::2], parts[1::2], strict=True)]
    return [(heading, blocks) for heading, blocks in found if blocks]


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    where = simulator.url.removeprefix("http://").removesuffix("/v1")
    return start_shared_gateway(catalogue=ROOT / "demo" / "catalogue.yaml", DEMO_SIMULATOR=where)


class Run(Protocol):
    """Runs a section's snippet in a language, and returns what it printed."""

    def __call__(self, heading: str, language: str, snippet: str) -> str: ...


@pytest.fixture
def run(server: GatewayServer, open_account: OpenAccount, tmp_path: Path) -> Run:
    """Makes all snippets of a test share one account and one folder."""
    account = open_account(server)
    env = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": account.key}

    def in_folder(heading: str, language: str, snippet: str) -> str:
        (tmp_path / "snippet.mjs").write_text(snippet)
        command: list[str] = {
            "sh": ["bash", "-ec", 'curl() { command curl --silent --show-error "$@"; }\n' + snippet],
            "python": [sys.executable, "-c", snippet],
            "javascript": ["node", "snippet.mjs"],
        }[language]
        ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, f"{heading}, {language}: {ran.stderr}"
        return ran.stdout

    return in_folder


def test_the_answer_in_the_readme_is_the_gateways(server: GatewayServer, open_account: OpenAccount) -> None:
    shown = json.loads(
        re.findall(r"^```json\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    )
    said = shown["choices"][0]["message"]["content"]
    body = {"model": "sim/demo/echo", "messages": [{"role": "user", "content": said}]}
    server.seed(DATA / "places.yaml")  # as the demo does
    before = open_account(server)
    assert eventually(lambda: "grid_kind" in before.http.post(PATH, json=body).json()["gateway_metadata"])
    given = open_account(server).http.post(PATH, json=body).json()
    assert (given["id"][:4], type(given["created"])) == (shown["id"][:4], int)
    assert given | {"id": shown["id"], "created": shown["created"]} == shown


def test_every_section_with_snippets_has_each_language_and_what_they_print() -> None:
    found = sections()
    assert len(found) == 8
    for heading, blocks in found:
        assert blocks.keys() == {"sh", "python", "javascript", "text"}, heading


def test_every_snippet_for_the_shell_is_answered(run: Run) -> None:
    find_program("curl")
    for heading, blocks in sections():  # whole answers have ids of their own
        is_refused = heading == "Errors and retries"
        printed = run(heading, "sh", blocks["sh"])
        assert ('"error":{' in printed) is is_refused, f"{heading}: {printed}"


def test_the_first_snippet_in_python_prints_what_is_below_it(run: Run) -> None:
    heading, blocks = sections()[0]
    assert run(heading, "python", blocks["python"]) == blocks["text"]


@pytest.mark.campaign
def test_every_snippet_runs_and_prints_what_is_below_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(installed(ROOT / "tests" / "node") / "node_modules")
    for heading, blocks in sections():
        for language in ("python", "javascript"):
            printed = run(heading, language, blocks[language])
            # The output shown is Python's; Node writes booleans in small letters.
            expected = blocks["text"] if language == "python" else blocks["text"].replace("True", "true")
            assert printed == expected, f"{heading}, {language}"
