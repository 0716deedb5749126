"""The log has a leaf for each ledger entry, in each account's order, and its heads are consistent."""

import pytest
from tlog_scales.tlog import Checkpoint as OtherCheckpoint

from billing.models import LedgerEntry
from proof import receipts, sequencer
from proof.log_key import LogKey
from proof.models import Leaf
from tests.billing.records import open_for, serve

pytestmark = [pytest.mark.django_db, pytest.mark.also_sqlite]


@pytest.fixture
def key(settings):
    made = LogKey.new("gateway.example/log")
    settings.LOG_KEY = made.to_text()
    return made


def test_each_entry_becomes_a_leaf(key: LogKey) -> None:
    acme, other = open_for(name="Acme"), open_for(name="Other")
    for _ in range(5):
        serve(acme)
        serve(other)
    assert sequencer.advance() is False
    leaves = list(Leaf.objects.order_by("index"))
    assert len(leaves) == LedgerEntry.objects.count() == 12
    published = receipts.published()
    assert published is not None
    assert published.size == 12
    print(leaves[-1].content, len(leaves[-1].content))
    print(published.note)
    checkpoint = OtherCheckpoint.from_text(published.note)


def test_an_export_verifies(key, tmp_path, capsys):
    import io
    import subprocess
    import sys

    from django.core.management import call_command

    acme, other = open_for(name="Acme"), open_for(name="Other")
    for _ in range(5):
        serve(acme)
        serve(other)
    sequencer.advance()
    old = tmp_path / "old"
    old.write_text(receipts.published().note)
    for _ in range(300):
        serve(acme)
        serve(other)
    sequencer.advance()
    out = io.StringIO()
    call_command(
        "export_usage",
        str(acme.pk),
        "--since=2000-01-01",
        "--until=2999-01-01",
        "--format=jsonl",
        "--proofs",
        "--checkpoint-size=12",
        stdout=out,
    )
    f = tmp_path / "e.jsonl"
    f.write_text(out.getvalue())
    f2 = __import__("pathlib").Path("/tmp/e.jsonl")
    f2.write_text(out.getvalue())
    for vk in key.verifier_keys:
        r = subprocess.run(
            [sys.executable, "tools/verify.py", "export", str(f), "--key", str(vk), "--checkpoint", str(old)],
            capture_output=True,
            text=True,
        )
        print(r.stdout, r.stderr)
        assert r.returncode == 0

    call_command("verify_log", "--checkpoint", str(old))
