"""Claude Code itself, headless, through the gateway: it reads a file, edits it, runs a command and finishes."""

import json
import os
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests import bills
from tests.catalogue import PRICES
from tests.servers.customer import Customer
from tests.servers.node import installed
from tests.servers.process import ROOT

pytestmark = [
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js with npm"),
    pytest.mark.sqlite_is_enough,
]


def claude(account: Customer, folder: Path, model: str, prompt: str) -> Any:
    """What the program says of its turns, set up as in docs/clients.md, at home and at work in folders of its own."""
    home = folder / "home"
    home.mkdir()
    settings = {
        "ANTHROPIC_BASE_URL": account.gateway.origin,
        "ANTHROPIC_AUTH_TOKEN": account.key,
        "ANTHROPIC_MODEL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    package = installed(ROOT / "tests" / "claude_code") / "node_modules" / "@anthropic-ai" / "claude-code"
    done = subprocess.run(
        [
            *("node", str(package / "cli-wrapper.cjs")),
            *("--print", prompt, "--output-format", "json", "--allowed-tools", "Read,Edit,Bash"),
        ],
        cwd=folder / "work",
        env={"PATH": os.environ["PATH"], "HOME": str(home), **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


@pytest.mark.parametrize("model", ["sim/test/script", "simanthropic/claude/script"])
def test_claude_code_edits_a_file_and_the_ledger_has_its_turns(account: Customer, tmp_path: Path, model: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    notes = work / "notes.txt"
    notes.write_text("one\n")
    steps = [
        step("Read", file_path=str(notes)),
        step("Edit", file_path=str(notes), old_string="one", new_string="two"),
        step("Bash", command="wc -w < notes.txt > count.txt", description="Count"),
        "The file says two.",
    ]
    output = claude(account, tmp_path, model, f"Edit the file. <script>{json.dumps(steps)}</script>")
    assert (output["is_error"], output["result"], output["num_turns"]) == (False, "The file says two.", len(steps))
    assert (notes.read_text(), (work / "count.txt").read_text().strip()) == ("two\n", "1")
    records = bills.records(account)
    assert [record.ending for record in records] == ["finished"] * len(steps)
    assert output["usage"]["input_tokens"] == sum(record.prompt_tokens for record in records)
    assert output["usage"]["output_tokens"] == sum(record.completion_tokens for record in records)
    prompt_price, completion_price = (
        Decimal(str(PRICES[f"{kind}_per_1m_tokens"])) / 1_000_000 for kind in ("prompt", "completion")
    )
    assert bills.debits(account) == [
        record.prompt_tokens * prompt_price + record.completion_tokens * completion_price for record in records
    ]


def step(name: str, **arguments: str) -> Any:
    """A step of the script."""
    return {"name": name, "arguments": arguments}
