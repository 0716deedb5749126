"""Reads the list of witnesses: a policy file (c2sp.org/tlog-policy), whose path is in `LOG_POLICY`."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from .notes import ED25519_COSIGNATURE, ML_DSA_44, InvalidNote, VerifierKey

NOBODY = "none"
MOST_NAME_BYTES = 200
COSIGNATURES = (ED25519_COSIGNATURE, ML_DSA_44)


@dataclass(frozen=True, slots=True)
class Witness:
    """Holds a witness: its name in the policy, its key, and the URL that it takes checkpoints at; empty if unknown."""

    name: str
    key: VerifierKey
    url: str

    @property
    def key_name(self) -> str:
        """Returns the name and the id of the key, which identify the witness."""
        return f"{self.key.name}+{self.key.key_id.hex()}"


@dataclass(frozen=True, slots=True)
class Group:
    """Holds the names of a group's members. The group has cosigned if at least `fewest` of them have."""

    fewest: int
    members: tuple[str, ...]


@dataclass(slots=True)
class Policy:
    """Holds the witnesses, their groups, and the quorum: the witness or group that must have cosigned a checkpoint."""

    witnesses: dict[str, Witness] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    quorum: str = NOBODY

    def is_met(self, cosigned: Collection[str]) -> bool:
        """Tells whether the witnesses of these names are a quorum."""
        return self.quorum == NOBODY or self._has_cosigned(self.quorum, cosigned)

    def _has_cosigned(self, name: str, cosigned: Collection[str]) -> bool:
        if name in self.witnesses:
            return name in cosigned
        group = self.groups[name]
        return sum(self._has_cosigned(member, cosigned) for member in group.members) >= group.fewest


class InvalidPolicy(ValueError):
    """Is raised for a line of a policy file that cannot be read."""


def current() -> Policy:
    """Returns the policy of `LOG_POLICY`, or one without witnesses. Raises ImproperlyConfigured."""
    if settings.LOG_POLICY is None:
        return Policy()
    return _read(settings.LOG_POLICY)


def parse(content: bytes) -> Policy:
    """Reads a policy file. Raises InvalidPolicy with the number of the line.

    Octets above 127 have no meaning: names that differ in them are different names.
    """
    policy, members, logs, has_quorum = Policy(), set[str](), set[bytes](), False
    for number, line in enumerate(content.decode(errors="surrogateescape").split("\n"), 1):
        words = re.split(r"[ \t]+", line.strip(" \t"))
        try:
            if character := re.search(r"[\x00-\x08\x0b-\x1f\x7f]", line):
                raise InvalidPolicy(f"it has the control character {character[0]!r}")
            match words:
                case [word, *_] if not word or word.startswith("#"):
                    pass
                case ["log", key] | ["log", key, _]:
                    _add_log(logs, key)
                case ["witness", name, key] | ["witness", name, key, _]:
                    _add_witness(policy, name, key, words[3] if len(words) > 3 else "")
                case ["group", name, fewest, *names] if names:
                    _add_group(policy, members, name, fewest, names)
                case ["quorum", _] if has_quorum:
                    raise InvalidPolicy("it is a second quorum")
                case ["quorum", name]:
                    policy.quorum, has_quorum = _known(policy, name, or_nobody=True), True
                case _:
                    raise InvalidPolicy("it is not a line of a policy")
        except (InvalidPolicy, InvalidNote) as error:
            raise InvalidPolicy(f"line {number}: {error}") from None
    if not has_quorum:
        raise InvalidPolicy("it has no line `quorum`")
    return policy


def _read(path: Path) -> Policy:
    try:
        policy = parse(path.read_bytes())
    except OSError as error:
        raise ImproperlyConfigured(f"LOG_POLICY: {path}: {error.strerror}.") from None
    except InvalidPolicy as error:
        words = f"{error}".rstrip(".").encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise ImproperlyConfigured(f"LOG_POLICY: {path}: {words}.") from None
    if not policy.is_met({witness.name for witness in policy.witnesses.values() if witness.url}):
        raise ImproperlyConfigured(f"LOG_POLICY: {path}: its quorum needs witnesses that have no URL.")
    return policy


def _add_log(logs: set[bytes], key: str) -> None:
    """Checks the line of a log, which verifiers need. The gateway knows its own log."""
    log = _verifier_key(key)
    if log.public in logs:
        raise InvalidPolicy(f"{log.name} has the key of another log")
    logs.add(log.public)


def _add_witness(policy: Policy, name: str, key: str, url: str) -> None:
    witness = Witness(_new(policy, name), _verifier_key(key), url.rstrip("/"))
    if witness.key.kind not in COSIGNATURES:
        raise InvalidPolicy(f"the key of {name} is no key for cosignatures")
    if any(each.key.public == witness.key.public for each in policy.witnesses.values()):
        raise InvalidPolicy(f"{name} has the key of another witness")
    if url and not re.fullmatch(r"https?://.+", url):
        raise InvalidPolicy(f"the URL of {name} does not begin with https:// or http://")
    policy.witnesses[name] = witness


def _add_group(policy: Policy, members: set[str], name: str, fewest: str, names: list[str]) -> None:
    count = {"all": len(names), "any": 1}.get(fewest) or (
        int(fewest) if re.fullmatch(r"[1-9][0-9]{0,8}", fewest) else 0
    )
    if not 1 <= count <= len(names):
        raise InvalidPolicy(f"{fewest} is neither `all` nor `any` nor a number from 1 to {len(names)}")
    for member in names:
        if _known(policy, member) in members:
            raise InvalidPolicy(f"{member} is in a group already")
        members.add(member)
    policy.groups[_new(policy, name)] = Group(count, tuple(names))


def _verifier_key(text: str) -> VerifierKey:
    try:
        is_short = len(text.partition("+")[0].encode()) <= MOST_NAME_BYTES
    except UnicodeEncodeError:
        raise InvalidPolicy("the name of the key is not UTF-8") from None
    if not is_short:
        raise InvalidPolicy(f"the name of the key is longer than {MOST_NAME_BYTES} bytes")
    return VerifierKey.from_text(text)


def _new(policy: Policy, name: str) -> str:
    if name == NOBODY or name in policy.witnesses or name in policy.groups:
        raise InvalidPolicy(f"the name {name} is taken")
    return name


def _known(policy: Policy, name: str, *, or_nobody: bool = False) -> str:
    if name in policy.witnesses or name in policy.groups or (or_nobody and name == NOBODY):
        return name
    raise InvalidPolicy(f"{name} is not defined before")
