"""Claude Code itself runs headless with the gateway: it reads a file, edits it, runs a command and finishes."""

import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests import bills
from tests.catalogue import PRICES
from tests.inference import agents
from tests.servers.customer import Customer
from tests.servers.node import installed
from tests.servers.process import ROOT
from tests.servers.simulator import Simulator

pytestmark = pytest.mark.process

RETRIES = 2  # instead of ten
ASKED = {"agent-401": 1, "agent-429": 1 + RETRIES, "agent-overflow": 1}
TOLD = {
    "agent-401": (503, "API Error: 503 Provider '{provider}' refuses the gateway itself"),
    "agent-429": (429, "Request rejected (429) · Provider '{provider}' answered with HTTP 429"),
    "agent-overflow": (400, "Prompt is too long"),
}


def claude(account: Customer, folder: Path, model: str, prompt: str, **variables: str) -> Any:
    """Runs the program in folders of its own, set up as in docs/clients.md, and returns its report on its turns."""
    (folder / "work").mkdir(exist_ok=True)
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
        env={"PATH": os.environ["PATH"], "HOME": str(home), **settings, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    output = json.loads(done.stdout)
    assert done.returncode == int(output["is_error"]), done.stderr + done.stdout
    return output


@pytest.mark.parametrize(
    "model",
    [
        "sim/test/script",
        pytest.param("simanthropic/claude/script", marks=pytest.mark.campaign),
        pytest.param("sim/test/script-google", marks=pytest.mark.campaign),
        pytest.param("sim/test/script-openrouter", marks=pytest.mark.campaign),
    ],
)
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


@pytest.mark.campaign
@pytest.mark.parametrize("models", ["sim/test", "simanthropic/claude"])
@pytest.mark.parametrize("slug", agents.FAILURES)
def test_futile_requests_are_sent_once_and_rate_limited_ones_as_often_as_configured(
    account: Customer, simulator: Simulator, tmp_path: Path, models: str, slug: str
) -> None:
    with agents.counted(simulator) as asked:
        output = claude(account, tmp_path, f"{models}/{slug}", "Say hello.", CLAUDE_CODE_MAX_RETRIES=str(RETRIES))
    # A model that speaks Messages first refuses the program's system message within a conversation, and gets none then.
    more = 1 if (models, slug) == ("simanthropic/claude", "agent-overflow") else 0
    assert asked == dict.fromkeys(agents.FAILURES, 0) | {slug: ASKED[slug] + more}
    status, words = TOLD[slug]
    assert (output["is_error"], output["api_error_status"]) == (True, status)
    assert words.format(provider=models.partition("/")[0]) in output["result"]
    assert bills.untouched(account)


def step(name: str, **arguments: str) -> Any:
    """Returns a step of the script."""
    return {"name": name, "arguments": arguments}
