"""Vercel's AI SDK works with each of the gateway's APIs: tests/ai_sdk/check.mjs runs it, this module checks it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import bills
from tests.inference import agents
from tests.servers.customer import Customer
from tests.servers.node import installed
from tests.servers.process import ROOT
from tests.servers.simulator import Simulator

PACKAGE = ROOT / "tests" / "ai_sdk"

pytestmark = pytest.mark.campaign


def read(account: Customer, api: str, models: str, folder: Path) -> Any:
    """Returns what the SDK read from the gateway's answers."""
    script = shutil.copy(PACKAGE / "check.mjs", folder)
    (folder / "node_modules").symlink_to(installed(PACKAGE) / "node_modules")
    command = ["node", str(script), api, account.gateway.origin, account.key, models]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("api", "models"),
    [
        ("responses", "sim/test"),
        ("responses", "simanthropic/claude"),
        ("responses", "sim/native"),
        ("chat", "sim/test"),
        ("messages", "simanthropic/claude"),
    ],
)
def test_loops_of_tools_end_and_failures_are_retried_only_as_often_as_allowed(
    account: Customer, simulator: Simulator, tmp_path: Path, api: str, models: str
) -> None:
    with agents.counted(simulator) as asked:
        output = read(account, api, models, tmp_path)
    for name in ("whole", "streamed"):
        loop = output[name]
        assert (loop["asked"], loop["text"]) == (["Paris", "Berlin"], "Both are fine.")
    assert output["secondTurn"] == "and again"
    without = output["withoutTheLine"]
    if api == "responses":  # the SDK sends references to items that it believes to be stored
        assert (without["status"], "`store: false`" in without["message"]) == (400, True)
    else:
        assert without == {"text": "and again"}
    refused = output["refused"]
    assert {slug: refused[slug]["status"] for slug in agents.FAILURES} == {
        "agent-401": 503, "agent-429": 503 if api == "chat" else 429, "agent-overflow": 400
    }  # fmt: skip
    assert "maximum" in refused["agent-overflow"]["message"]
    # The SDK repeats every 5xx twice, whatever `x-should-retry` is, and waits for `Retry-After`.
    assert asked == {"agent-401": 3, "agent-429": 3, "agent-overflow": 1}
    endings = [record.ending for record in bills.records(account)]
    assert endings == ["finished"] * (9 if api == "responses" else 10)
