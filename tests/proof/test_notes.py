"""Checkpoints are signed notes as C2SP specifies them, so other implementations read them, and the log reads theirs."""

import base64
import dataclasses
import secrets

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from tlog_scales.signing import MLDSA44CosignatureSigner, PlainEd25519Signer, Vkey
from tlog_scales.tlog import Checkpoint as OtherCheckpoint

from proof import notes
from proof.merkle import EMPTY_ROOT
from proof.notes import Checkpoint, InvalidNote, Signature, Signer, TreeHead, VerifierKey

# The examples of c2sp.org/signed-note and c2sp.org/tlog-cosignature.
VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
TEXT = "This is an example message.\n"
LINE = "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM="
COSIGNED = (
    "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
    "— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5"
    "/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
    "— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe"
    "+mbIUBkBIfZ+qnA==\n"
)
HEAD = TreeHead("log.example/1", 7, bytes(range(32)))
SIGNER = Signer("log.example/1", bytes(32))
TIME = 1_800_000_000


def signed(head: TreeHead = HEAD, signer: Signer = SIGNER) -> Checkpoint:
    return Checkpoint(head, signer.sign(head, TIME))


def witness() -> tuple[Ed25519PrivateKey, VerifierKey]:
    key = Ed25519PrivateKey.generate()
    return key, VerifierKey("witness.example/w", notes.ED25519_COSIGNATURE, key.public_key().public_bytes_raw())


def test_the_specification_s_verifier_key_verifies_its_note() -> None:
    key, signature = VerifierKey.from_text(VKEY), Signature.from_line(LINE)
    assert (key.name, key.kind, str(key)) == ("example.com/foo", notes.ED25519, VKEY)
    assert (signature.name, signature.key_id, signature.line) == (key.name, key.key_id, f"{LINE}\n")
    Ed25519PublicKey.from_public_bytes(key.public).verify(signature.signature, TEXT.encode())


def test_the_specification_s_checkpoint_reads_and_writes_back() -> None:
    checkpoint = Checkpoint.from_note(COSIGNED)
    assert (checkpoint.head.origin, checkpoint.head.size) == ("example.com/behind-the-sofa", 20852163)
    assert [each.name for each in checkpoint.signatures] == ["example.com/behind-the-sofa", "witness.example.com/w1"]
    assert checkpoint.note == COSIGNED


def test_another_implementation_verifies_both_lines_of_the_log() -> None:
    read = OtherCheckpoint.from_text(signed().note)
    assert (read.origin, read.size, read.root_hash) == ("log.example/1", 7, HEAD.root)
    assert [key.kind for key in SIGNER.verifier_keys] == [notes.ED25519, notes.ML_DSA_44]
    for key in SIGNER.verifier_keys:
        read.verify(Vkey.from_string(str(key)))


def test_another_implementation_verifies_an_ed25519_cosignature() -> None:
    private, key = witness()
    message = notes.cosigned(notes.ED25519_COSIGNATURE, key.name, TIME, HEAD)
    signature = Signature(key.name, key.key_id, TIME.to_bytes(8) + private.sign(message))
    key.verify(HEAD, signature)
    read = OtherCheckpoint.from_text(Checkpoint(HEAD, (signature,)).note)
    read.verify(Vkey.from_string(str(key)))


@pytest.mark.parametrize("signer", [PlainEd25519Signer, MLDSA44CosignatureSigner])
def test_the_log_verifies_what_another_implementation_signs(
    signer: type[PlainEd25519Signer | MLDSA44CosignatureSigner],
) -> None:
    other = signer("other.example", secrets.token_bytes(32))
    note = OtherCheckpoint.make_signed("log.example/1", 7, HEAD.root, [other]).serialize()
    checkpoint = Checkpoint.from_note(note)
    assert checkpoint.head == HEAD
    key = VerifierKey.from_text(other.vkey.serialize())  # type: ignore[no-untyped-call]
    assert checkpoint.is_signed_by(key)


@pytest.mark.parametrize(
    "changed",
    [
        dataclasses.replace(HEAD, size=8),
        dataclasses.replace(HEAD, root=bytes(32)),
        dataclasses.replace(HEAD, origin="log.example/2"),
    ],
)
def test_no_signature_is_valid_for_another_head(changed: TreeHead) -> None:
    private, key = witness()
    message = notes.cosigned(notes.ED25519_COSIGNATURE, key.name, TIME, HEAD)
    cosignature = Signature(key.name, key.key_id, TIME.to_bytes(8) + private.sign(message))
    forged = Checkpoint(changed, (*signed().signatures, cosignature))
    for each in (*SIGNER.verifier_keys, key):
        with pytest.raises(InvalidNote, match="does not verify"):
            forged.is_signed_by(each)


def test_a_cosignature_is_valid_only_at_its_time_and_for_its_signer() -> None:
    _, ml_dsa_44 = SIGNER.verifier_keys
    _, signature = SIGNER.sign(HEAD, TIME)
    later = dataclasses.replace(signature, signature=(TIME + 1).to_bytes(8) + signature.signature[8:])
    with pytest.raises(InvalidNote):
        ml_dsa_44.verify(HEAD, later)
    with pytest.raises(InvalidNote):
        dataclasses.replace(ml_dsa_44, name="other.example").verify(HEAD, signature)


@pytest.mark.parametrize("length", [0, 7, 8, 71])
def test_a_signature_of_a_wrong_length_does_not_verify(length: int) -> None:
    for key in (*SIGNER.verifier_keys, witness()[1]):
        with pytest.raises(InvalidNote):
            key.verify(HEAD, Signature(key.name, key.key_id, bytes(length)))


def test_a_signature_of_an_unknown_key_is_ignored() -> None:
    other = Signer("log.example/1", bytes([1]) * 32)
    assert [signed().is_signed_by(key) for key in other.verifier_keys] == [False, False]
    both = Checkpoint(HEAD, (*signed().signatures, *other.sign(HEAD, TIME)))
    assert all(both.is_signed_by(key) for key in (*SIGNER.verifier_keys, *other.verifier_keys))
    assert notes.without_unknown(both.signatures, SIGNER.verifier_keys) == list(both.signatures[:2])


def malformed() -> dict[str, str]:
    note = signed(TreeHead("log.example/1", 0, EMPTY_ROOT)).note
    text, _, lines = note.partition("\n\n")
    origin, size, root = text.split("\n")
    return {
        "empty": "",
        "without a separator": note.replace("\n\n", "\n"),
        "without an end of line": note.removesuffix("\n"),
        "without signatures": f"{text}\n\n",
        "an empty origin": f"\n{size}\n{root}\n\n{lines}",
        "two lines": f"{origin}\n{size}\n\n{lines}",
        "an extension": f"{text}\nmore\n\n{lines}",
        "a negative size": f"{origin}\n-1\n{root}\n\n{lines}",
        "a size with a zero in front": f"{origin}\n00\n{root}\n\n{lines}",
        "a size in other digits": f"{origin}\n\N{ARABIC-INDIC DIGIT ONE}\n{root}\n\n{lines}",
        "a size beyond eight bytes": f"{origin}\n{2**64}\n{root}\n\n{lines}",
        "a size of ten thousand digits": f"{origin}\n{'9' * 10_000}\n{root}\n\n{lines}",
        "a short root": f"{origin}\n{size}\n{base64.b64encode(bytes(31)).decode()}\n\n{lines}",
        "a root that is no Base64": f"{origin}\n{size}\n{'*' * 44}\n\n{lines}",
        "a control character": f"{origin}\t\n{size}\n{root}\n\n{lines}",
        "carriage returns": note.replace("\n", "\r\n"),
        "a hyphen for the dash": note.replace("—", "-"),
        "a line without a name": f"{text}\n\n— AAAAAAAA\n",
        "a line without a signature": f"{text}\n\n— log.example/1 AAAAAA==\n",
        "a line that is no Base64": f"{text}\n\n— log.example/1 äöü\n",
    }


@pytest.mark.parametrize("name", malformed())
def test_a_malformed_note_is_refused(name: str) -> None:
    with pytest.raises(InvalidNote):
        Checkpoint.from_note(malformed()[name])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com/foo",
        "example.com/foo+530d903a",
        VKEY.replace("530d903a", "530d903b"),
        VKEY.replace("/foo", "/bar"),
        VKEY[:-4],
        str(VerifierKey("example.com/foo", 2, bytes(32))),
    ],
)
def test_a_malformed_verifier_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidNote):
        VerifierKey.from_text(text)


def test_no_representation_shows_the_seed() -> None:
    signer = Signer("log.example/1", b"s" * 32)
    assert "sss" not in repr(signer)
