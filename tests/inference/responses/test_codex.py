"""Codex CLI itself runs headless with the gateway: it reads a file, edits it, runs a command and finishes."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests import bills
from tests.catalogue import PRICES
from tests.inference import agents
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.node import installed
from tests.servers.process import ROOT
from tests.servers.simulator import Simulator

pytestmark = pytest.mark.process

CONFIG = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs" / "clients.md").read_text(), re.DOTALL | re.MULTILINE)[0]
ASKED = {"agent-401": 4, "agent-429": 4, "agent-overflow": 1}
TOLD = {
    "agent-401": "unexpected status 503 Service Unavailable: Provider '{provider}' refuses the gateway itself",
    "agent-429": "exceeded retry limit, last status: 429 Too Many Requests",
    "agent-overflow": "Codex ran out of room in the model's context window.",
}
OF_A_CATALOGUE = {"supports_search_tool": False, "support_verbosity": False}
OPTIONS = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
PATCH = """*** Begin Patch
*** Update File: notes.txt
@@
-one
+two
*** End Patch
"""


@dataclass(frozen=True)
class Codex:
    """Runs the program, with home and working folders of its own."""

    account: Customer
    folder: Path

    def configure(self, model: str) -> None:
        for name in ("home", "work"):
            (self.folder / name).mkdir()
        (self.folder / "home" / "config.toml").write_text(
            CONFIG.replace("sim/demo/tools", model).replace("https://gateway.example/v1", self.account.gateway.base_url)
        )

    def describe(self, model: str) -> None:
        """Gives the program a catalogue in which the model edits files by a custom tool, as OpenAI's models do."""
        described = next(
            each for each in json.loads(self.run("debug", "models"))["models"] if each["slug"] == "gpt-5.5"
        )
        catalogue, config = self.folder / "home" / "models.json", self.folder / "home" / "config.toml"
        catalogue.write_text(json.dumps({"models": [{**described, **OF_A_CATALOGUE, "slug": model}]}))
        config.write_text(f'model_catalog_json = "{catalogue}"\n{config.read_text()}')

    def run(self, *command: str) -> str:
        done = self.tried(*command)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def tried(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs the program and returns its result, whatever it is."""
        home = str(self.folder / "home")
        return subprocess.run(
            [installed(ROOT / "tests" / "codex") / "node_modules" / ".bin" / "codex", *command],
            cwd=self.folder / "work",
            env={**os.environ, "CODEX_HOME": home, "HOME": home, "GATEWAY_API_KEY": self.account.key},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.mark.parametrize(
    ("model", "patches"),
    [
        pytest.param("sim/test/script", False, id="shell"),
        pytest.param("sim/test/script-google", False, id="google", marks=pytest.mark.campaign),
        pytest.param("sim/test/script-openrouter", False, id="openrouter", marks=pytest.mark.campaign),
        pytest.param("simanthropic/claude/script", True, id="custom tool", marks=pytest.mark.campaign),
    ],
)
def test_codex_edits_a_file_and_the_ledger_has_its_turns(
    account: Customer, tmp_path: Path, model: str, *, patches: bool
) -> None:
    codex = Codex(account, tmp_path)
    codex.configure(model)
    if patches:
        codex.describe(model)
    notes = tmp_path / "work" / "notes.txt"
    notes.write_text("one\n")
    by_shell = shell(f"apply_patch <<'EOF'\n{PATCH}EOF")
    edit = {"name": "apply_patch", "arguments": {"input": PATCH}} if patches else by_shell
    steps = [shell("cat notes.txt"), edit, shell("wc -w < notes.txt > count.txt"), "The file says two."]
    prompt = f"Edit the file. <script>{json.dumps(steps)}</script>"
    events = [json.loads(line) for line in codex.run("exec", *OPTIONS, prompt).splitlines()]
    assert (notes.read_text(), (tmp_path / "work" / "count.txt").read_text().strip()) == ("two\n", "1")
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == ["The file says two."]
    (done,) = [event for event in events if event["type"] == "turn.completed"]
    records = bills.records(account)
    assert [record.ending for record in records] == ["finished"] * len(steps)
    assert done["usage"]["input_tokens"] == sum(record.prompt_tokens for record in records)
    assert done["usage"]["output_tokens"] == sum(record.completion_tokens for record in records)
    prompt_price, completion_price = (
        Decimal(str(PRICES[f"{kind}_per_1m_tokens"])) / 1_000_000 for kind in ("prompt", "completion")
    )
    assert bills.debits(account) == [
        record.prompt_tokens * prompt_price + record.completion_tokens * completion_price for record in records
    ]


@pytest.mark.campaign
def test_codex_tries_a_websocket_gets_a_426_and_goes_on_by_post(account: Customer, tmp_path: Path) -> None:
    codex = Codex(account, tmp_path)
    codex.configure("sim/test/echo")
    config = tmp_path / "home" / "config.toml"
    config.write_text(
        config.read_text().replace('wire_api = "responses"', 'wire_api = "responses"\nsupports_websockets = true')
    )
    events = [json.loads(line) for line in codex.run("exec", *OPTIONS, "Say hello.").splitlines()]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == ["Say hello."]
    assert [record.ending for record in bills.records(account)] == ["finished"]
    tried = "SELECT status FROM billing_requestfailure WHERE account_id = %s"
    assert eventually(lambda: (426,) in account.gateway.query(tried, [account.id]))


@pytest.mark.campaign
@pytest.mark.parametrize("models", ["sim/test", "simanthropic/claude"])
@pytest.mark.parametrize("slug", agents.FAILURES)
def test_a_failure_is_retried_as_often_as_configured_and_reported(
    account: Customer, simulator: Simulator, tmp_path: Path, models: str, slug: str
) -> None:
    codex = Codex(account, tmp_path)
    codex.configure(f"{models}/{slug}")
    with agents.counted(simulator) as asked:
        done = codex.tried("exec", *OPTIONS, "Say hello.")
    assert asked == dict.fromkeys(agents.FAILURES, 0) | {slug: ASKED[slug]}
    last = json.loads(done.stdout.splitlines()[-1])
    told = TOLD[slug].format(provider=models.partition("/")[0])
    assert (done.returncode, last["type"], told in last["error"]["message"]) == (1, "turn.failed", True), last
    assert bills.untouched(account)


def shell(command: str) -> Any:
    """Returns a step of the script."""
    return {"name": "exec_command", "arguments": {"cmd": command}}
