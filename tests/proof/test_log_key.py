"""The log's key is made once, only its owner can read it, and nothing shows it but `--print`."""

import io
import json
import stat
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from pytest_django import Settings

from proof import log_key
from proof.log_key import LogKey, LogKeyExists

Run = Callable[..., str]


@pytest.fixture
def path(settings: Settings, tmp_path: Path) -> Path:
    settings.LOG_KEY = ""
    settings.LOG_KEY_FILE = tmp_path / "var" / "log_key"
    settings.PUBLIC_URL = "https://gateway.example"
    made: Path = settings.LOG_KEY_FILE
    return made


@pytest.fixture
def run(path: Path) -> Run:
    """Runs the command, and checks that its output has no secret of the key."""

    def _run(*arguments: str) -> str:
        out, before = io.StringIO(), secrets_in(path)
        try:
            call_command("log_key", *arguments, stdout=out, stderr=out)
        finally:
            if "--print" not in arguments:
                assert not [each for each in before | secrets_in(path) if each in out.getvalue()]
        return out.getvalue()

    return _run


def secrets_in(path: Path) -> set[str]:
    if not path.exists():
        return set()
    fields = json.loads(path.read_text())
    return {*fields["seeds"], fields["pseudonyms"]}


def key_in(path: Path) -> LogKey:
    return LogKey.from_text(path.read_text())


def test_create_writes_a_file_that_only_its_owner_reads_and_prints_the_verifier_keys(run: Run, path: Path) -> None:
    shown = run("create")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [line.split("+")[0] for line in shown.splitlines()] == ["gateway.example/log"] * 2
    assert [b64decode(line.split("+", 2)[2])[0] for line in shown.splitlines()] == [1, 6]
    assert run("publish") == shown
    assert list(path.parent.iterdir()) == [path]


def test_create_never_replaces_a_key(run: Run, path: Path) -> None:
    run("create", "--origin", "one.example")
    before = path.read_text()
    with pytest.raises(CommandError, match="There is a log key already"):
        run("create", "--origin", "two.example")
    with pytest.raises(LogKeyExists):
        log_key.write(LogKey.new("two.example"), path, is_new=True)
    assert path.read_text() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("origin", ["two words", "with+plus", "tab\there", "ä" * 128])
def test_an_origin_that_cannot_name_a_key_is_refused(run: Run, path: Path, origin: str) -> None:
    with pytest.raises(CommandError, match="--origin"):
        run("create", "--origin", origin)
    assert not path.exists()


def test_a_rotation_adds_a_key_in_front_and_its_end_removes_the_former_one(run: Run, path: Path) -> None:
    first = run("create").splitlines()
    both = run("rotate").splitlines()
    assert (both[2:], len(both)) == (first, 4)
    again = run("rotate").splitlines()
    assert (again[2:], len(again)) == (both[:2], 4)
    assert run("rotate", "--finish").splitlines() == again[:2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(CommandError, match="Only one key signs"):
        run("rotate", "--finish")


def test_origin_and_pseudonyms_survive_a_rotation(run: Run, path: Path) -> None:
    run("create")
    before = key_in(path)
    run("rotate")
    run("rotate", "--finish")
    after = key_in(path)
    assert (after.origin, after.pseudonym_key) == (before.origin, before.pseudonym_key)
    assert after.seeds != before.seeds


def test_print_shows_the_line_for_the_environment_and_writes_nothing(run: Run, path: Path, settings: Settings) -> None:
    line = run("create", "--print").strip()
    assert not path.exists()
    settings.LOG_KEY = line
    assert log_key.current() == LogKey.from_text(line)
    with pytest.raises(CommandError, match="use --print"):
        run("rotate")
    rotated = LogKey.from_text(run("rotate", "--print"))
    assert rotated.seeds[1:] == LogKey.from_text(line).seeds
    assert not path.exists()


def test_the_environment_counts_before_the_file(run: Run, path: Path, settings: Settings) -> None:
    run("create")
    settings.LOG_KEY = LogKey.new("other.example").to_text()
    current = log_key.current()
    assert current is not None
    assert current.origin == "other.example"


def test_without_a_key_only_create_does_something(run: Run) -> None:
    assert log_key.current() is None
    for todo in ("rotate", "publish"):
        with pytest.raises(CommandError, match="There is no log key"):
            run(todo)


SECRET = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3I="  # 32 bytes
BAD = [
    SECRET,
    "{",
    "[]",
    json.dumps({"origin": "x.example", "seeds": [SECRET]}),
    json.dumps({"origin": "x.example", "seeds": [], "pseudonyms": SECRET}),
    json.dumps({"origin": "x.example", "seeds": [SECRET[:-4]], "pseudonyms": SECRET}),
    json.dumps({"origin": "x.example", "seeds": SECRET, "pseudonyms": SECRET}),
    json.dumps({"origin": "x.example", "seeds": [f"{SECRET}*"], "pseudonyms": SECRET}),
    json.dumps({"origin": "two words", "seeds": [SECRET], "pseudonyms": SECRET}),
    json.dumps({"origin": 1, "seeds": [SECRET], "pseudonyms": SECRET}),
]


@pytest.mark.parametrize("text", BAD)
def test_a_bad_key_stops_the_start_and_is_not_repeated(path: Path, settings: Settings, text: str) -> None:
    settings.LOG_KEY = text
    with pytest.raises(ImproperlyConfigured) as refusal:
        apps.get_app_config("proof").ready()
    assert "LOG_KEY" in str(refusal.value)
    assert SECRET[:20] not in str(refusal.value)
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


def test_a_key_file_that_is_no_text_stops_the_start(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"\xff\xfe secret")
    with pytest.raises(ImproperlyConfigured, match="LOG_KEY is the line"):
        log_key.current()


def test_no_representation_shows_a_secret() -> None:
    key = LogKey("x.example", (b"s" * 32,), b"p" * 32)
    assert repr(key) == "LogKey(origin='x.example')"
