"""A command writes its output before it commits, or does neither. Commands run in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.servers.customer import opened
from tests.servers.gateway import GatewayServer
from tests.servers.manage import Completed
from tests.servers.process import ROOT

pytestmark = pytest.mark.process
FULL = Path("/dev/full")
TABLES = (
    "accounts_account",
    "accounts_apikey",
    "accounts_user",
    "accounts_membership",
    "billing_wallet",
    "billing_ledgerentry",
    "catalogue_provider",
    "catalogue_catalogueversion",
    "catalogue_gridslot",
)
CATALOGUE = """
providers:
  - {slug: quiet, name: Q, base_url: "http://127.0.0.1:9/v1", dialect: openai, country: FR, credential_env: QUIET}
"""
GRID = """{"data": [{"from": "2026-11-01T00:00Z", "to": "2026-11-01T00:30Z", "intensity": {"actual": 100}}]}"""
ALWAYS = ("--since", "2000-01-01", "--until", "2999-12-31")
WRITING = {
    "create_account": ("create_account", "Full Disk", "--credit", "5", "--owner", "owner@full.example"),
    "create_key": ("create_key", "{account}", "--name", "lost"),
    "delete_key": ("delete_key", "{account}", "--name", "test"),
    "grant_credit": ("grant_credit", "{account}", "5", "--reference", "lost"),
    "seed_catalogue": ("seed_catalogue", "{folder}/catalogue.yaml"),
    "import_grid": ("import_grid", "carbonintensity", "--zone", "GB", "--file", "{folder}/grid.json"),
}
READING = {
    "export_usage": ("export_usage", "{account}", *ALWAYS),
    "list_accounts": ("list_accounts", "--json"),
    "list_keys": ("list_keys", "{account}"),
    "verify_ledger": ("verify_ledger",),
    "maintain": ("maintain",),
    "version": ("version",),
    "a command of Django": ("showmigrations",),
}


def sampled(*names: str, of: Mapping[str, object]) -> list[ParameterSet]:
    """Makes parameters of the names: those given run always, the others in a campaign."""
    return [pytest.param(name, marks=() if name in names else pytest.mark.campaign) for name in of]


@pytest.fixture
def account(operator: GatewayServer) -> str:
    return opened(operator)


@contextmanager
def output(kind: str) -> Iterator[int]:
    """Opens a file descriptor to which nothing can be written."""
    if kind == "full disk":
        descriptor = os.open(FULL, os.O_WRONLY)
    else:
        reader, descriptor = os.pipe()
        os.close(reader)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def run(operator: GatewayServer, kind: str, command: tuple[str, ...], **env: str) -> Completed:
    line = [sys.executable, "manage.py", *command]
    if kind == "closed":
        line = ["sh", "-c", 'exec "$@" >&-', "sh", *line]
    with output(kind) as descriptor:
        done = subprocess.run(
            line,
            cwd=ROOT,
            env={**operator.env, "PYTHONUNBUFFERED": "", **env},
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    return Completed("", done.stderr, done.returncode)


def rows(operator: GatewayServer) -> list[object]:
    return [operator.query(f"SELECT * FROM {table} ORDER BY 1") for table in TABLES]


def filled(command: tuple[str, ...], account: str, folder: Path) -> tuple[str, ...]:
    (folder / "catalogue.yaml").write_text(CATALOGUE)
    (folder / "grid.json").write_text(GRID)
    return tuple(argument.format(account=account, folder=folder) for argument in command)


@pytest.mark.parametrize("name", sampled("create_account", of=WRITING))
def test_a_full_disk_leaves_nothing_behind(operator: GatewayServer, account: str, tmp_path: Path, name: str) -> None:
    command, before = filled(WRITING[name], account, tmp_path), rows(operator)
    done = run(operator, "full disk", command)
    expected = "CommandError: Standard output cannot be written: No space left on device. Nothing was changed.\n"
    assert (done.stderr, done.code) == (expected, 1)
    assert rows(operator) == before
    operator.manage(*command).ok()
    assert rows(operator) != before, "the same command works once there is room"


@pytest.mark.parametrize(
    ("kind", "env", "expected"),
    [
        pytest.param(
            "full disk",
            {"PYTHONUNBUFFERED": "1"},
            "Standard output cannot be written: No space left on device.",
            marks=pytest.mark.campaign,
        ),
        ("closed pipe", {}, "Standard output cannot be written: Broken pipe."),
        ("closed", {}, "Standard output is closed."),
    ],
)
def test_nor_does_another_output_that_fails(
    operator: GatewayServer, account: str, kind: str, env: dict[str, str], expected: str
) -> None:
    before = rows(operator)
    done = run(operator, kind, ("create_key", account, "--name", "lost"), **env)
    assert (done.stderr, done.code) == (f"CommandError: {expected} Nothing was changed.\n", 1)
    assert rows(operator) == before


@pytest.mark.parametrize("name", sampled("export_usage", of=READING))
def test_other_commands_say_so_in_one_line(operator: GatewayServer, account: str, tmp_path: Path, name: str) -> None:
    done = run(operator, "full disk", filled(READING[name], account, tmp_path))
    assert (done.stderr, done.code) == (
        "CommandError: Standard output cannot be written: No space left on device.\n",
        1,
    )


@pytest.mark.parametrize("name", sampled("verify_ledger", of=dict.fromkeys(["export_usage", "verify_ledger"])))
def test_a_command_that_reads_ends_quietly_if_its_reader_wants_no_more(
    operator: GatewayServer, account: str, tmp_path: Path, name: str
) -> None:
    done = run(operator, "closed pipe", filled(READING[name], account, tmp_path))
    assert (done.stderr, done.code) == ("", 141)


def test_output_is_utf8_whatever_the_locale(operator: GatewayServer, account: str) -> None:
    printed = "Deleted clé ☕ (sk-gw-…"
    operator.manage("create_key", account, "--name", "clé ☕").ok()
    done = subprocess.run(
        [sys.executable, "manage.py", "delete_key", account, "--name", "clé ☕"],
        cwd=ROOT,
        env={**operator.env, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.decode("utf-8").startswith(printed), done.stderr


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            ("create_account", "Kabushiki", "--currency", "JPY"), id="create_account", marks=pytest.mark.campaign
        ),
        pytest.param(("grant_credit", "{account}", "5", "--reference", "lost"), id="grant_credit"),
    ],
)
def test_nothing_is_left_behind_if_what_it_warns_of_cannot_be_written(
    operator: GatewayServer, account: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    before = rows(operator)
    with FULL.open("wb") as full:
        done = subprocess.run(
            [sys.executable, "manage.py", *filled(command, account, tmp_path)],
            cwd=ROOT,
            env=dict(operator.env),
            stdout=subprocess.DEVNULL,
            stderr=full,
            timeout=60,
            check=False,
        )
    assert done.returncode != 0
    assert rows(operator) == before


def test_a_closed_error_stream_is_no_failure(operator: GatewayServer, account: str) -> None:
    operator.manage("grant_credit", account, "5", "--reference", "twice").ok()
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} manage.py grant_credit '{account}' 5 --reference twice 2>&-"],
        cwd=ROOT,
        env=dict(operator.env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("15.00\n", 0)
