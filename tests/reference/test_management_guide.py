"""Runs the script of docs/management.md that opens accounts for fifty customers, twice."""

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import managing
from tests.servers.customer import GatewaySession
from tests.servers.gateway import GatewayServer
from tests.servers.process import ROOT

CUSTOMERS = 50


@pytest.fixture
def operator(gateway: GatewayServer) -> Iterator[GatewaySession]:
    yield managing.operating(gateway)
    managing.close_all()


def test_fifty_customers_are_opened_once_with_credit_policies_and_keys(
    gateway: GatewayServer, operator: GatewaySession, tmp_path: Path
) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "management.md").read_text(), re.DOTALL)
    assert script.count("\n") <= 30
    batch = uuid.uuid4().hex[:8]
    customers = [f"Customer {batch} {number},owner{number}-{batch}@example.com,{number}.50" for number in range(1, 51)]
    env = os.environ | {
        "OPERATOR_KEY": str(operator.headers["Authorization"]).removeprefix("Bearer "),
        "GATEWAY_URL": gateway.origin,
    }

    def run() -> list[list[str]]:
        done = subprocess.run(
            [sys.executable, "-c", script],
            input="\n".join(customers),
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [line.split(",") for line in done.stdout.splitlines()]

    printed = run()
    assert len(printed) == CUSTOMERS
    assert run() == []
    name, boss, app = printed[6]
    who = managing.using(gateway, app).get("/v1/key").json()
    assert (who["account"]["name"], who["account"]["balance"], who["tags"]) == (name, "7.50", ["env=prod"])
    assert who["budget"]["amount"] == "500.00"
    members = managing.using(gateway, boss).get("/v1/members").json()["data"]
    assert [(member["email"], member["role"]) for member in members] == [(f"owner7-{batch}@example.com", "owner")]
    gateway.manage("verify_ledger", "--account", name).ok()
