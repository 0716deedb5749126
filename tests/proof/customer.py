"""Does what a customer does: keeps checkpoints, receipts and exports, and verifies them without the gateway's code."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.core.management import call_command

from accounts.models import Account
from billing.models import Generation
from proof import receipts
from tests.proof.log import KEY

VERIFY = Path(__file__).parents[2] / "tools" / "verify.py"
VKEY = str(KEY.verifier_keys[0])


def verify(kind: str, path: Path, *arguments: object) -> str:
    """Runs `tools/verify.py`, which can import nothing of the project; returns what it prints."""
    command = [sys.executable, "-I", str(VERIFY), kind, str(path), *map(str, arguments)]
    if "--key" not in arguments:
        command += ["--key", VKEY]
    ended = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    assert ended.returncode == ended.stderr.startswith("FAULT: "), ended.stderr
    assert (ended.stdout + ended.stderr).count("\n") == 1
    return (ended.stdout + ended.stderr).strip()


def receipt_of(record: Generation, size: int | None = None) -> dict[str, Any]:
    """Returns a receipt as the API shows it."""
    receipt = receipts.receipt_of(record.pk)
    assert receipt is not None
    body = receipt.body(record.public_id)
    if size is not None:
        body |= {"consistent_with": size, "consistency": receipt.prover.consistency_with(size)}
    return body


def export_of(account: Account, size: int = 0) -> list[dict[str, Any]]:
    """Returns the lines of an export of all time."""
    out = io.StringIO()
    period = ("--since=2000-01-01", "--until=2999-01-01")
    arguments = ("--format=jsonl", "--proofs", f"--checkpoint-size={size}")
    call_command("export_usage", str(account.pk), *period, *arguments, stdout=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def write(path: Path, content: str | dict[str, Any] | list[dict[str, Any]]) -> Path:
    """Writes a note, a receipt or an export to a file."""
    if isinstance(content, list):
        content = "".join(f"{json.dumps(line)}\n" for line in content)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def save_checkpoint(path: Path) -> Path:
    """Saves the published checkpoint."""
    note = receipts.published_note()
    assert note is not None
    return write(path, note)


def size_of(checkpoint: Path) -> int:
    return int(checkpoint.read_text().splitlines()[1])
