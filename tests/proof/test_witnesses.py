"""A checkpoint is published once a quorum of witnesses has cosigned it. They answer over HTTP, or misbehave."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
import requests
from django.db import connections
from pytest_django import Settings
from tlog_scales.signing import Vkey
from tlog_scales.tlog import Checkpoint

from gateway.db.pool import release_all
from proof import receipts, sequencer, witnesses
from proof.models import Leaf, LogCheckpoint, LogWitness
from tests.billing.records import open_for, serve
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.proof.log import KEY, ORIGIN
from tests.servers.process import free_port
from tests.servers.witness import Answer, TestWitness, with_unknown_key, with_wrong_signature

pytestmark = pytest.mark.django_db


class MakeWitness(Protocol):
    def __call__(self, name: str, *, is_ml_dsa: bool = True) -> TestWitness: ...


@pytest.fixture
def make_witness(tmp_path: Path) -> Iterator[MakeWitness]:
    """Starts witnesses that trust the log of the tests."""
    made: list[TestWitness] = []

    def make(name: str, *, is_ml_dsa: bool = True) -> TestWitness:
        made.append(TestWitness(name, tmp_path, is_ml_dsa=is_ml_dsa).start())
        made[-1].trust(*map(str, KEY.verifier_keys))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(autouse=True)
def log(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives the process the log's key and a policy file, which the tests write; returns its path."""
    settings.LOG_KEY = KEY.to_text()
    settings.LOG_POLICY = tmp_path / "policy"
    monkeypatch.setattr(witnesses, "_outages", {})  # a failure in an earlier test would silence this one's
    return tmp_path / "policy"


def write(policy: Path, *lines: str) -> None:
    policy.write_text("".join(f"{line}\n" for line in lines))


def published_size() -> int:
    found = receipts.published()
    return 0 if found is None else found.size


def cosigners(note: str, *known: TestWitness) -> list[str]:
    """Returns the names of the witnesses whose cosignatures verify by `tlog_scales`, in the note's order."""
    checkpoint = Checkpoint.from_text(note)
    vkeys = [each.signer.vkey for each in known]
    found = [(vkey, each) for each in checkpoint.signatures for vkey in vkeys if vkey.match(each)]
    for vkey, each in found:
        vkey.get_verifier().verify_note(each, checkpoint)
    return [vkey.name for vkey, _ in found]


def again() -> None:
    """Does what a worker does once the pause after a failure is over."""
    LogCheckpoint.objects.filter(published_at=None).update(offered_at=None)
    sequencer.advance()


def test_two_kinds_of_keys_cosign_and_verify(log: Path, make_witness: MakeWitness) -> None:
    one, two = make_witness("one.example"), make_witness("two.example", is_ml_dsa=False)
    write(log, one.line, two.line, "group both all one.example two.example", "quorum both")
    acme = open_for()
    for _ in range(3):
        serve(acme)
        sequencer.advance()
    found = receipts.published()
    assert found is not None
    assert found.size == 4
    assert cosigners(found.note, one, two) == ["one.example", "two.example"]
    for vkey in map(str, KEY.verifier_keys):
        Checkpoint.from_text(found.note).verify(Vkey.from_string(vkey))
    assert one.asked == two.asked == [(0, 2), (2, 3), (3, 4)]  # each time from the tree before
    assert (one.cosigned_size(ORIGIN), two.cosigned_size(ORIGIN)) == (4, 4)


def test_a_witness_is_shown_only_the_signatures_of_the_log(log: Path, make_witness: MakeWitness) -> None:
    one = make_witness("one.example")
    write(log, one.line, "quorum one.example")
    serve(open_for())
    sequencer.advance()
    (note,) = one.notes
    assert {each.name for each in Checkpoint.from_text(note).signatures} == {ORIGIN}


def test_a_witness_that_knows_another_size_gets_the_proof_from_there(log: Path, make_witness: MakeWitness) -> None:
    one = make_witness("one.example")
    write(log, one.line, "quorum one.example")
    acme = open_for()
    for _ in range(5):
        serve(acme)
    sequencer.advance()
    LogWitness.objects.update(size=3)  # as after a restore of this table alone
    serve(acme)
    sequencer.advance()
    LogWitness.objects.all().delete()
    serve(acme)
    sequencer.advance()
    assert one.asked == [(0, 6), (3, 7), (6, 7), (0, 8), (7, 8)]
    assert published_size() == 8


def test_a_remembered_size_that_the_log_has_not_reached_is_asked_anew(log: Path, make_witness: MakeWitness) -> None:
    one = make_witness("one.example")
    write(log, one.line, "quorum one.example")
    acme = open_for()
    sequencer.advance()
    LogWitness.objects.update(size=1000)
    serve(acme)
    sequencer.advance()
    assert one.asked == [(0, 1), (0, 2), (1, 2)]
    assert published_size() == 2


def test_a_witness_that_has_cosigned_this_very_tree_cosigns_it_again(log: Path, make_witness: MakeWitness) -> None:
    one = make_witness("one.example")
    write(log, one.line, "quorum one.example")
    serve(open_for())
    sequencer.advance()
    LogCheckpoint.objects.update(note="", offered_at=None, published_at=None)  # killed before it stored the answer
    sequencer.advance()
    assert one.asked == [(0, 2), (2, 2)]
    assert published_size() == 2


def test_nobody_is_asked_for_a_quorum_of_none(log: Path) -> None:
    write(log, "quorum none")
    serve(open_for())
    sequencer.advance()
    assert published_size() == 2


def test_a_witness_outside_of_the_quorum_is_asked_and_may_fail(log: Path, make_witness: MakeWitness) -> None:
    one, two = make_witness("one.example"), make_witness("two.example")
    write(log, one.line, two.line, "quorum none")
    two.misbehave = lambda _: Answer(500)
    serve(open_for())
    sequencer.advance()
    found = receipts.published()
    assert found is not None
    assert cosigners(found.note, one, two) == ["one.example"]


def test_a_witness_that_is_away_delays_the_checkpoint_and_is_asked_again(
    log: Path, make_witness: MakeWitness, caplog: pytest.LogCaptureFixture
) -> None:
    one = make_witness("one.example")
    away = f"witness one.example {one.vkey} http://127.0.0.1:{free_port()}"
    acme = open_for()
    write(log, away, "quorum one.example")
    with caplog.at_level(logging.WARNING):
        sequencer.advance()
    assert "the witness one.example does not cosign: it cannot be reached (ConnectionError)" in caplog.text
    for _ in range(5):
        serve(acme)
        again()
    assert published_size() == 0
    assert Leaf.objects.count() == 6  # the log grows all the same
    assert LogCheckpoint.objects.count() == 1  # earlier heads are not kept
    write(log, one.line, "quorum one.example")
    again()
    assert published_size() == 6
    assert one.asked == [(0, 6)]
    assert LogCheckpoint.objects.count() == 1


def test_witnesses_that_have_cosigned_are_not_asked_again_for_the_others(log: Path, make_witness: MakeWitness) -> None:
    one, two = make_witness("one.example"), make_witness("two.example")
    write(log, one.line, two.line, "group both all one.example two.example", "quorum both")
    two.misbehave = lambda _: Answer(503)
    open_for()
    sequencer.advance()
    assert published_size() == 0
    two.speak()
    again()
    assert published_size() == 1
    assert one.asked == [(0, 1)]
    assert two.asked == [(0, 1), (0, 1), (1, 1)]  # it had cosigned, but not said so


MISBEHAVIOURS: dict[str, tuple[Callable[[Answer], Answer], str]] = {
    "a wrong signature": (with_wrong_signature, "The signature of one.example does not verify."),
    "another key": (
        lambda answer: replace(answer, body=answer.body.replace("one.example", "other.example")),
        "its answer has no signature of the key in LOG_POLICY",
    ),
    "garbage": (lambda _: Answer(200, "<html>Welcome</html>\n"), "It is not a signature line"),
    "nothing": (lambda _: Answer(200), "It is not a signature line"),
    "too much": (lambda answer: replace(answer, body=answer.body * 1000), "its answer is too long"),
    "a redirect": (lambda _: Answer(301), "status 301"),
    "an unknown status": (lambda _: Answer(599), "status 599"),
    "an unknown origin": (lambda _: Answer(404), "status 404: it does not know this log's origin"),
    "a key that it does not trust": (lambda _: Answer(403), "status 403: it does not trust this log's key"),
    "a size in HTML": (lambda _: Answer(409, "12\n", "text/html"), "status 409 without the size that it knows"),
    "a size in words": (lambda _: Answer(409, "twelve\n", "text/x.tlog.size"), "status 409 without the size"),
    "an endless size": (lambda _: Answer(409, "9" * 5000, "text/x.tlog.size"), "status 409 without the size"),
    "the same size each time": (lambda _: Answer(409, "0\n", "text/x.tlog.size"), "it names another size each time"),
    "a larger tree": (
        lambda _: Answer(409, "1000\n", "text/x.tlog.size"),
        "it has cosigned 1000 leaves, the log has only 2: entries are missing, as after a restore of the database",
    ),
}


@pytest.mark.parametrize(("misbehave", "line"), MISBEHAVIOURS.values(), ids=MISBEHAVIOURS)
def test_a_witness_that_misbehaves_does_not_count_and_is_named(
    misbehave: Callable[[Answer], Answer],
    line: str,
    log: Path,
    make_witness: MakeWitness,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = make_witness("one.example")
    write(log, one.line, "quorum one.example")
    one.misbehave = misbehave
    serve(open_for())
    with caplog.at_level(logging.WARNING):
        sequencer.advance()
    assert published_size() == 0
    (found,) = [each.message for each in caplog.records if "one.example" in each.message]
    assert found.startswith("the witness one.example does not cosign: ")
    assert line in found


def test_signatures_of_unknown_keys_in_an_answer_are_ignored(log: Path, make_witness: MakeWitness) -> None:
    one = make_witness("one.example")
    write(log, one.line, "quorum one.example")
    one.misbehave = with_unknown_key
    serve(open_for())
    sequencer.advance()
    found = receipts.published()
    assert found is not None
    assert cosigners(found.note, one) == ["one.example"]
    assert "unknown.example" not in found.note


def test_a_slow_witness_costs_its_time_limit_and_no_more(
    log: Path, make_witness: MakeWitness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = make_witness("one.example"), make_witness("two.example")
    write(log, one.line, two.line, "group either any one.example two.example", "quorum either")
    monkeypatch.setattr(witnesses, "ANSWER_SECONDS", 0.3)
    one.be_silent()
    serve(open_for())
    with caplog.at_level(logging.WARNING):
        sequencer.advance()
    assert published_size() == 2
    assert "the witness one.example does not cosign: it cannot be reached (ReadTimeout)" in caplog.text


def test_a_log_that_was_rewritten_is_refused(
    log: Path, make_witness: MakeWitness, caplog: pytest.LogCaptureFixture
) -> None:
    one = make_witness("one.example")
    write(log, one.line, "quorum one.example")
    serve(open_for())
    one.forge(ORIGIN, 1)
    with caplog.at_level(logging.WARNING):
        sequencer.advance()
    assert published_size() == 0
    assert "status 422: the log does not continue the tree that it has cosigned" in caplog.text


def test_a_database_that_was_restored_is_refused(
    log: Path, make_witness: MakeWitness, caplog: pytest.LogCaptureFixture
) -> None:
    one = make_witness("one.example")
    write(log, one.line, "quorum one.example")
    one.forge(ORIGIN, 500)
    serve(open_for())
    with caplog.at_level(logging.WARNING):
        sequencer.advance()
    assert published_size() == 0
    assert "it has cosigned 500 leaves, the log has only 2: entries are missing, as after a restore" in caplog.text
    assert one.asked == [(0, 2)]  # nothing else is tried


def test_the_newest_head_is_published_although_a_process_died_after_an_older_one(log: Path) -> None:
    write(log, "quorum none")
    acme = open_for()
    sequencer.append(KEY)
    sequencer.sign(KEY)
    LogCheckpoint.objects.update(offered_at=None)
    for _ in range(3):
        serve(acme)
        sequencer.append(KEY)
    assert LogCheckpoint.objects.count() == 4
    sequencer.advance()
    assert [each.size for each in LogCheckpoint.objects.all()] == [4]


def test_a_rotated_key_signs_the_published_checkpoint_and_its_cosignatures_stay(
    log: Path, make_witness: MakeWitness, settings: Settings
) -> None:
    one = make_witness("one.example")
    write(log, one.line, "quorum one.example")
    open_for()
    sequencer.advance()
    both = KEY.rotated()
    for key in (both, both.without_former()):
        settings.LOG_KEY = key.to_text()
        sequencer.advance()
        found = receipts.published()
        assert found is not None
        checkpoint = Checkpoint.from_text(found.note)
        for vkey in map(str, key.verifier_keys):
            checkpoint.verify(Vkey.from_string(vkey))
        assert len(checkpoint.signatures) == len(key.verifier_keys) + 1
        assert cosigners(found.note, one) == ["one.example"]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_held_while_a_witness_is_waited_for(log: Path, make_witness: MakeWitness) -> None:
    one = make_witness("one.example")
    write(log, one.line, "quorum one.example")
    acme = open_for()
    serve(acme)
    ours, seen = connections["default"], dict[str, Any]()

    def look(answer: Answer) -> Answer:
        """Does in the witness's thread what another process does meanwhile."""
        one.misbehave = None
        seen["our connection"] = ours.connection
        serve(acme)
        sequencer.advance()
        seen["leaves"] = Leaf.objects.count()
        release_all()
        return answer

    one.misbehave = look
    sequencer.advance()
    assert seen == {"our connection": None, "leaves": 3}  # it could append, so the lock was free
    assert (one.asked, one.most_at_once) == ([(0, 2)], 1)  # but it did not ask the witness as well
    assert published_size() == 2
    sequencer.advance()
    assert published_size() == 3


@pytest.mark.only_postgres
@pytest.mark.django_db(transaction=True)
def test_several_workers_ask_a_witness_one_after_the_other(
    tmp_path: Path, make_witness: MakeWitness, start_gateway: StartGateway, open_account: OpenAccount
) -> None:
    one, policy = make_witness("one.example"), tmp_path / "policy-of-workers"
    write(policy, one.line, "quorum one.example")
    one.misbehave = lambda answer: answer if one.asked[-1][1] % 3 else Answer(503)
    gateway = start_gateway(
        LOG_KEY=KEY.to_text(),
        LOG_POLICY=str(policy),
        WEB_CONCURRENCY="3",
        DJANGO_SETTINGS_MODULE="tests.proof.short_intervals",
    )
    customer = open_account(gateway)

    def note_of(size: int) -> bool:
        reply = requests.get(f"{gateway.origin}/log/checkpoint", timeout=10)
        return reply.status_code == 200 and Checkpoint.from_text(reply.text).size >= size

    for size in (2, 3, 4, 5):
        body = {"model": "sim/test/echo", "messages": [{"role": "user", "content": "Hello"}]}
        assert customer.http.post("/v1/chat/completions", json=body).status_code == 200
        assert size % 3 == 0 or eventually(lambda size=size: note_of(size))  # type: ignore[misc]
    assert one.most_at_once == 1
    sizes = [size for _, size in one.asked]
    assert sizes == sorted(sizes)
    assert eventually(lambda: len(gateway.query("SELECT size FROM proof_logcheckpoint")) == 1)
