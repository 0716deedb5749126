"""Runs Schemathesis, which sends requests that the OpenAPI document allows or forbids, against a real gateway.

It is installed in `var/schemathesis`, apart from the development packages, because its plugins would load with every
test.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.customer import Customer
from tests.servers.process import ROOT

VERSION = "4.32.5"
# This is the number of requests for each endpoint, in addition to some 2,000 that go through the values of each field.
# The campaign sends the same ones at each run; if a number is given, they differ at each run.
ASKED = os.environ.get("SCHEMATHESIS_EXAMPLES")
FIXED = ("--phases", "examples,fuzzing", "--seed", "1")
CAMPAIGN = (
    ("--max-examples", ASKED, "--phases", "examples,coverage,fuzzing") if ASKED else ("--max-examples", "4", *FIXED)
)
SMOKE = ("--max-examples", "1", *FIXED, "--include-path-regex", "/(chat/completions|aliases)$")
# A request with a valid shape may still be refused for its content: an unknown model, a target that is not served.
NOT_OURS = "positive_data_acceptance"


@pytest.mark.process
@pytest.mark.parametrize(
    "how", [pytest.param(SMOKE, id="smoke"), pytest.param(CAMPAIGN, id="campaign", marks=pytest.mark.campaign)]
)
def test_no_request_gets_an_answer_that_is_not_described(
    account: Customer, tmp_path: Path, how: tuple[str, ...]
) -> None:
    ran = subprocess.run(
        [
            *(
                str(schemathesis()),
                "run",
                f"{account.gateway.origin}/v1/openapi.json",
                "--url",
                account.gateway.base_url,
            ),
            *("--header", f"Authorization: Bearer {account.key}", "--exclude-checks", NOT_OURS),
            *("--max-failures", "5", "--suppress-health-check", "all", *how),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    print(ran.stdout[-2000:])  # noqa: T201  # shows how many requests there were
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]


def schemathesis() -> Path:
    """Returns the program, which is installed once."""
    venv = ROOT / "var" / f"schemathesis-{VERSION}"
    venv.parent.mkdir(exist_ok=True)
    with (venv.parent / "schemathesis.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (venv / "installed").exists():
            python, uv = str(venv / "bin" / "python"), str(ROOT / "var" / "uv" / "bin" / "uv")
            has_uv = Path(uv).exists()  # exists once `make` has installed what tests need
            create = [uv, "venv"] if has_uv else [sys.executable, "-m", "venv"]
            install = [uv, "pip", "install", "--python", python] if has_uv else [python, "-m", "pip", "install"]
            subprocess.run([*create, "--clear", venv], check=True)
            subprocess.run([*install, "--quiet", f"schemathesis=={VERSION}"], check=True)
            (venv / "installed").touch()
    return venv / "bin" / "schemathesis"
