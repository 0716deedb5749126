"""The policy file (c2sp.org/tlog-policy) is read as its specification says; each fault is named with its line."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from tlog_scales.signing import Vkey
from tlog_scales.utils import sha256

from proof.policy import InvalidPolicy, parse
from tests.servers.gateway import GatewayServer
from tests.servers.witness import text_of


def ed25519(name: str, kind: int = 0x04) -> str:
    """Returns a verifier key; any 32 bytes are a key for the file."""
    return text_of(Vkey(name, None, kind, sha256(name.encode())))


def ml_dsa(name: str) -> str:
    public = MLDSA44PrivateKey.from_seed_bytes(sha256(name.encode())).public_key().public_bytes_raw()
    return text_of(Vkey(name, None, 0x06, public))


def witnesses(*names: str) -> str:
    return "".join(f"witness {name} {ed25519(name)} https://{name}.example\n" for name in names)


def test_a_quorum_is_one_witness() -> None:
    found = parse(f"witness a {ml_dsa('a')} https://a.example/w/\nquorum a\n".encode())
    assert found.witnesses["a"].url == "https://a.example/w"
    assert found.is_met({"a"})
    assert not found.is_met(set())
    assert not found.is_met({"b"})


def test_a_quorum_none_asks_for_nobody() -> None:
    assert parse(b"quorum none").is_met(set())
    assert parse(f"{witnesses('a')}quorum none\n".encode()).is_met(set())


@pytest.mark.parametrize(
    ("fewest", "enough", "too_few"),
    [("any", {"b"}, set[str]()), ("all", {"a", "b", "c"}, {"a", "b"}), ("2", {"a", "c"}, {"c"})],
)
def test_a_group_needs_any_all_or_a_number_of_its_members(fewest: str, enough: set[str], too_few: set[str]) -> None:
    found = parse(f"{witnesses('a', 'b', 'c')}group g {fewest} a b c\nquorum g\n".encode())
    assert found.is_met(enough)
    assert not found.is_met(too_few)


def test_groups_have_groups_as_members() -> None:
    found = parse(
        (
            witnesses("x1", "x2", "x3", "y1", "y2")
            + "group X 2 x1 x2 x3\ngroup Y any y1 y2\ngroup both all X Y\nquorum both\n"
        ).encode()
    )
    assert found.is_met({"x1", "x3", "y2"})
    assert not found.is_met({"x1", "x2", "x3"})
    assert not found.is_met({"x1", "y1", "y2"})


def test_whitespace_comments_and_the_order_of_lines_do_not_matter() -> None:
    text = f"""
\t# a comment, which may be in any language: Zeugen, témoins
 \t
  log {ed25519("gateway.example/log", 0x01)}\thttps://gateway.example/log
witness\t a \t{ed25519("a")}\t
 group g any\ta
quorum  g\t
#"""
    found = parse(text.encode())
    assert (found.quorum, found.witnesses["a"].url) == ("g", "")


def test_octets_above_127_are_opaque() -> None:
    kelvin = "\N{KELVIN SIGN}"
    text = f"witness K {ed25519('a')} https://a.example\nwitness {kelvin} {ed25519('b')} https://b.example\n"
    found = parse(
        text.encode()
        + b"witness \xff\xfe "
        + ed25519("c").encode()
        + b"\ngroup g 3 \xff\xfe K \xe2\x84\xaa\nquorum g\n"
    )
    assert len(found.witnesses) == 3
    assert found.is_met(found.witnesses.keys())
    assert not found.is_met({"K", kelvin})


def test_spaces_of_other_alphabets_separate_nothing() -> None:
    found = parse(f"witness a\u00a0b {ed25519('a')}\nquorum a\u00a0b".encode())
    assert [*found.witnesses] == ["a\u00a0b"]


def test_there_is_room_for_32_witnesses_and_32_groups() -> None:
    names = [f"w{number}" for number in range(32)]
    groups = "group g0 any w0\n" + "".join(f"group g{n} all g{n - 1} w{n}\n" for n in range(1, 32))
    logs = "".join(f"log {ed25519(f'log{number}', 0x01)}\n" for number in range(32))
    found = parse(f"{logs}{witnesses(*names)}{groups}quorum g31\n".encode())
    assert found.is_met(names)
    assert not found.is_met(names[1:])


A = witnesses("a")
FAULTS = {
    "no quorum": (A, "it has no line `quorum`"),
    "an empty file": ("", "it has no line `quorum`"),
    "two quorums": ("quorum none\nquorum none\n", "line 2: it is a second quorum"),
    "an unknown quorum": (f"{A}quorum b\n", "line 2: b is not defined before"),
    "a quorum before its witness": (f"quorum a\n{A}", "line 1: a is not defined before"),
    "a quorum of two": (f"{A}quorum a a\n", "line 2: it is not a line of a policy"),
    "an unknown word": (f"{A}Quorum a\n", "line 2: it is not a line of a policy"),
    "an unknown member": (f"{A}group g any a b\n", "line 2: b is not defined before"),
    "a group of itself": (f"{A}group g any g\n", "line 2: g is not defined before"),
    "a group of nobody": (f"{A}group g any none\n", "line 2: none is not defined before"),
    "an empty group": (f"{A}group g any\n", "line 2: it is not a line of a policy"),
    "a member twice": (f"{A}group g any a a\n", "line 2: a is in a group already"),
    "a member of two groups": (f"{A}group g any a\ngroup h any a\n", "line 3: a is in a group already"),
    "none of one": (f"{A}group g 0 a\n", "line 2: 0 is neither"),
    "two of one": (f"{A}group g 2 a\n", "line 2: 2 is neither"),
    "a number with a zero in front": (f"{A}group g 01 a\n", "line 2: 01 is neither"),
    "a number of other digits": (f"{A}group g \N{ARABIC-INDIC DIGIT ONE} a\n", "line 2: \N{ARABIC-INDIC DIGIT ONE} is"),
    "a number without end": (f"{A}group g {'9' * 5000} a\n", "line 2: 9999"),
    "a witness named none": (f"witness none {ed25519('a')}\n", "line 1: the name none is taken"),
    "a name twice": (f"{A}\n\nwitness a {ed25519('b')}\n", "line 4: the name a is taken"),
    "a group with the name of a witness": (f"{A}group a any a\n", "line 2: the name a is taken"),
    "a key twice": (
        f"{A}witness b {text_of(Vkey('other', None, 0x04, sha256(b'a')))}\n",
        "line 2: b has the key of another witness",
    ),
    "a log twice": (
        f"log {ed25519('l', 0x01)}\nlog {text_of(Vkey('other', None, 0x01, sha256(b'l')))}\n",
        "line 2: other has the key of another log",
    ),
    "a key that signs no cosignatures": (f"witness a {ed25519('a', 0x01)}\n", "line 1: the key of a is no key for cos"),
    "no key": ("witness a\n", "line 1: it is not a line of a policy"),
    "a key that is none": ("witness a b+c+d\n", "line 1: "),
    "a wrong id": (
        f"witness a {ed25519('a').replace('a+', 'a+0', 1)}\n",
        "line 1: The verifier key of a has a wrong id",
    ),
    "a long name of a key": (f"witness a {ed25519('a' * 201)}\n", "line 1: the name of the key is longer than 200"),
    "another kind of URL": (f"witness a {ed25519('a')} ftp://a\n", "line 1: the URL of a does not begin with https://"),
    "too many words": (f"witness a {ed25519('a')} https://a b\n", "line 1: it is not a line of a policy"),
    "the line ends of Windows": (f"{A}quorum a\r\n", "line 2: it has the control character '\\r'"),
    "a control character in a comment": ("quorum none\n# \x07\n", "line 2: it has the control character '\\x07'"),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidPolicy) as found:
        parse(text.encode())
    assert str(found.value).startswith(message)


def test_a_key_whose_name_is_not_utf_8_is_a_fault() -> None:
    with pytest.raises(InvalidPolicy, match="line 1: the name of the key is not UTF-8"):
        parse(b"witness a \xff" + ed25519("a").encode() + b"\n")


BAD = {
    "line 2: b is not defined before": f"{A}quorum b\n",
    "line 1: \\xff is not defined before": b"quorum \xff\n",
    "its quorum needs witnesses that have no URL": f"witness a {ed25519('a')}\nquorum a\n",
}


@pytest.mark.process
@pytest.mark.parametrize(("message", "content"), BAD.items(), ids=[*BAD])
def test_a_bad_policy_stops_the_start_and_every_command(
    message: str, content: str | bytes, operator: GatewayServer, tmp_path: Path
) -> None:
    path = tmp_path / "policy"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for command in ("doctor", "check"):
        done = operator.manage_subprocess(command, LOG_POLICY=str(path))
        assert done.code == 1
        assert f"LOG_POLICY: {path}: {message}." in done.stderr
