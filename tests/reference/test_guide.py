"""Every snippet of docs/guide.md runs, in curl, Python and Node, and prints what the guide says it prints."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import OpenAccount, StartGateway
from tests.servers.node import installed
from tests.servers.process import ROOT
from tests.servers.simulator import Simulator

pytestmark = [
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js with npm"),
    pytest.mark.long,
]

BLOCK = re.compile(r"^```(sh|python|javascript|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def sections() -> list[tuple[str, dict[str, str]]]:
    """Each section with snippets: its heading, and its blocks by their language."""
    _, *parts = SECTION.split((ROOT / "docs" / "guide.md").read_text())
    found = [(heading, dict(BLOCK.findall(text))) for heading, text in zip(parts[::2], parts[1::2], strict=True)]
    return [(heading, blocks) for heading, blocks in found if blocks]


def test_every_snippet_runs_and_prints_what_is_below_it(
    start_gateway: StartGateway, open_account: OpenAccount, simulator: Simulator, tmp_path: Path
) -> None:
    where = simulator.url.removeprefix("http://").removesuffix("/v1")
    gateway = start_gateway(catalogue=ROOT / "demo" / "catalogue.yaml", DEMO_SIMULATOR=where)
    account = open_account(gateway)
    env = {**os.environ, "OPENAI_BASE_URL": gateway.base_url, "OPENAI_API_KEY": account.key}
    (tmp_path / "node_modules").symlink_to(installed(ROOT / "tests" / "node") / "node_modules")
    found = sections()
    assert len(found) == 8
    for heading, blocks in found:
        assert blocks.keys() == {"sh", "python", "javascript", "text"}, heading
        (tmp_path / "snippet.mjs").write_text(blocks["javascript"])
        commands = {
            "sh": ["bash", "-ec", 'curl() { command curl --silent --show-error "$@"; }\n' + blocks["sh"]],
            "python": [sys.executable, "-c", blocks["python"]],
            "javascript": ["node", "snippet.mjs"],
        }
        for language, command in commands.items():
            ran = subprocess.run(
                command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
            )
            assert ran.returncode == 0, f"{heading}, {language}: {ran.stderr}"
            if language == "sh":  # whole answers, with ids of their own
                refused = heading == "Errors and retries"
                assert ('"error":{' in ran.stdout) is refused, f"{heading}: {ran.stdout}"
            else:
                assert ran.stdout == blocks["text"], f"{heading}, {language}"
