"""`maintain` (docs/operations.md#maintain) does the periodic work once or repeatedly, and reports it."""

import contextlib
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.catalogue import catalogue_for
from tests.patience import eventually
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.process import ROOT, free_port

NOTHING = (
    "purged 0 secrets, settled 0 spooled and 0 orphaned generations, "
    "dropped 0 counters, 0 failures, 0 idempotency keys and 0 ended invitations, "
    "sent 0 events to webhooks"
)


@pytest.fixture(scope="module")
def server(migrated_databases: MigratedDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    """Prepares a gateway's database. The server is not started, so that only `maintain` does the work."""
    stopped = GatewayServer(
        migrated_databases, tmp_path_factory.mktemp("maintained"), catalogue=catalogue_for("http://127.0.0.1:9/v1")
    )
    with contextlib.closing(stopped):
        yield stopped


def once(server: GatewayServer) -> str:
    return server.manage("maintain", "--once").ok()


def test_it_purges_the_secrets_of_expired_keys(server: GatewayServer) -> None:
    server.manage("create_account", "Acme").ok()
    for name, expires in (("old", "7d"), ("young", "7d"), ("forever", "never")):
        server.manage("create_key", "Acme", "--name", name, "--expires", expires).ok()
    server.query("UPDATE accounts_apikey SET expires_at = '2026-01-01 00:00:00' WHERE name = 'old'")
    assert once(server) == NOTHING.replace("purged 0", "purged 1")
    assert server.query("SELECT name FROM accounts_apikey WHERE verifier IS NULL") == [("old",)]
    assert server.query("SELECT count(*) FROM accounts_apikey WHERE fingerprint IS NOT NULL") == [(3,)]
    assert once(server) == NOTHING


def test_it_drops_invitations_that_are_over_and_sessions_that_have_ended(server: GatewayServer) -> None:
    server.manage("create_account", "Inviting").ok()
    ((account,),) = server.query("SELECT id FROM accounts_account WHERE name = 'Inviting'")
    now = datetime.now(UTC)
    for address, days, accepted in (("over", 31, None), ("joined", 31, now), ("recent", 20, now), ("open", 1, None)):
        sent = now - timedelta(days=days)
        server.query(
            "INSERT INTO accounts_invitation (id, account_id, email, role, created_at, sent_at, expires_at, mails, "
            "accepted_at) VALUES (%s, %s, %s, 'member', %s, %s, %s, 1, %s)",
            [uuid.uuid4().hex, account, address, *(_text(sent),) * 2, _text(sent + timedelta(days=7)), _text(accepted)],
        )
    for key, lapses in (("old", -1), ("new", 1)):
        server.query(
            "INSERT INTO django_session (session_key, session_data, expire_date) VALUES (%s, '', %s)",
            [key, _text(now + timedelta(days=lapses))],
        )
    assert once(server) == NOTHING.replace("0 ended", "2 ended")
    assert server.query("SELECT email FROM accounts_invitation ORDER BY email") == [("open",), ("recent",)]
    assert server.query("SELECT session_key FROM django_session") == [("new",)]


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S+00:00")


def test_it_drops_counters_of_other_days_and_keeps_those_of_today(server: GatewayServer) -> None:
    ((region,),) = server.query("SELECT id FROM catalogue_region LIMIT 1")
    now = datetime.now(UTC)
    for moment in (now, now - timedelta(days=2)):
        server.query(
            "INSERT INTO catalogue_routeday (region_id, day, shard, tokens) VALUES (%s, %s, 0, 5)",
            [region, moment.date().isoformat()],
        )
        server.query(
            "INSERT INTO catalogue_providerminute (minute, provider, attempts, failures) VALUES (%s, 'sim', 1, 0)",
            [moment.strftime("%Y-%m-%d %H:%M:00")],
        )
    assert once(server) == NOTHING.replace("dropped 0", "dropped 2")
    assert once(server) == NOTHING
    assert server.manage("maintain").ok() == NOTHING
    for table in ("catalogue_routeday", "catalogue_providerminute"):
        assert server.query(f"SELECT count(*) FROM {table}") == [(1,)]


def leave_a_checkpoint(server: GatewayServer, frozen: str, beat_at: str = "2026-01-01 00:00:00") -> None:
    server.query("INSERT INTO billing_checkpoint VALUES (%s, %s, %s)", [uuid.uuid4().hex, frozen, beat_at])


@pytest.mark.process
def test_what_it_cannot_settle_is_one_line_each_and_no_error(server: GatewayServer) -> None:
    leave_a_checkpoint(server, "nonsense")
    server.spool.mkdir(exist_ok=True)
    (server.spool / f"{'0' * 32}.outcome").write_bytes(b"nonsense")
    result = server.manage_subprocess("maintain", "--once")
    assert (result.stdout.strip(), result.code) == (NOTHING, 0)
    assert "Traceback" not in result.stderr
    spooled, orphaned, summary = result.stderr.splitlines()
    assert f"{'0' * 32}.outcome cannot be settled and is set aside" in spooled
    assert "the checkpoint" in orphaned
    assert summary == "1 spooled outcomes and 1 checkpoints cannot be settled: see docs/operations.md"
    server.query("DELETE FROM billing_checkpoint")
    for path in server.spool.iterdir():
        path.unlink()


@pytest.mark.parametrize("arguments", [("--every", "0"), ("--every", "soon"), ("--every", "nan"), ("--once", "x")])
def test_a_mistake_is_one_line(server: GatewayServer, arguments: tuple[str, ...]) -> None:
    result = server.manage("maintain", *arguments)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith("CommandError: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.process
def test_a_database_that_is_away_is_one_line(server: GatewayServer) -> None:
    url = f"postgres://somebody:hunter2@127.0.0.1:{free_port()}/gateway"
    result = server.manage_subprocess("maintain", DATABASE_URL=url)
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.startswith("CommandError: The database refused: ")
    assert result.stderr.count("\n") == 1
    assert "hunter2" not in result.stderr


@contextlib.contextmanager
def every(server: GatewayServer, seconds: str, log: Path, **env: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs `maintain --every` as it runs next to a gateway."""
    command = [sys.executable, "manage.py", "maintain", "--every", seconds]
    with log.open("wb") as output:
        started = subprocess.Popen(command, cwd=ROOT, env={**server.env, **env}, stdout=output, stderr=output)
        with started:
            try:
                yield started
            finally:
                started.kill()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_goes_on_until_a_signal_stops_it(server: GatewayServer, tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "maintain.log"
    with every(server, "0.1", log) as running:
        assert eventually(lambda: log.read_text().count("purged") > 2)
        running.send_signal(number)
        assert running.wait(60) == 0
    assert "Traceback" not in log.read_text()


@pytest.mark.process
def test_a_stop_does_not_wait_for_the_next_round(server: GatewayServer, tmp_path: Path) -> None:
    log = tmp_path / "maintain.log"
    with every(server, "3600", log) as running:
        assert eventually(lambda: "purged" in log.read_text())
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0


@pytest.mark.process
def test_a_database_that_is_away_is_waited_for(server: GatewayServer, tmp_path: Path) -> None:
    log = tmp_path / "maintain.log"
    url = f"postgres://somebody:hunter2@127.0.0.1:{free_port()}/gateway"
    with every(server, "0.1", log, DATABASE_URL=url) as running:
        assert eventually(lambda: "maintenance waits: The database refused" in log.read_text())
        assert not eventually(lambda: log.read_text().count("The database refused") > 1, within=1)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    assert "Traceback" not in log.read_text()
