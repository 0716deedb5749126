"""Parsing and printing model ids: `{provider}/{creator}/{model}[/{locode}]`, `auto/…` and `alias/…`."""

import re
from dataclasses import dataclass

from gateway.errors import InvalidAliasName, InvalidRequest

GLOBAL = "global"
AUTO = "auto"
ALIAS = "alias"
ALIAS_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
ALIAS_RULE = "1-64 characters of lowercase a-z, 0-9, '-' or '_', starting with a letter or digit"


@dataclass(frozen=True, slots=True)
class ExplicitId:
    """A pinned route. `locode` is spelled as in the catalogue; None stands for the model's default region."""

    provider: str
    canonical_id: str
    locode: str | None


@dataclass(frozen=True, slots=True)
class AutoId:
    """Any eligible route of a canonical model."""

    canonical_id: str

    def __str__(self) -> str:
        return f"{AUTO}/{self.canonical_id}"


@dataclass(frozen=True, slots=True)
class AliasId:
    """An account's own name for a route."""

    name: str

    def __str__(self) -> str:
        return f"{ALIAS}/{self.name}"


def parse(text: str) -> ExplicitId | AutoId | AliasId:
    """What a `model` string means. Raises InvalidRequest (with the segment count) and InvalidAliasName."""
    segments = text.split("/")
    if segments[0] == ALIAS:
        return AliasId(_alias_name(text))
    if "" in segments or len(segments) not in (3, 4):
        raise InvalidRequest.of_field(
            "model",
            f"must match {{provider}}/{{creator}}/{{model}}[/{{locode}}], and {shown(text)!r} does not: "
            f"received {len(segments)} segment{'' if len(segments) == 1 else 's'}"
            f"{' (an empty one among them)' if '' in segments else ''}.",
        )
    if segments[0] == AUTO:
        if len(segments) == 4:
            raise InvalidRequest.of_field(
                "model",
                "must match auto/{creator}/{model}: received 4 segments. To pin a region, name a provider.",
            )
        return AutoId("/".join(segments[1:]))
    return ExplicitId(segments[0], "/".join(segments[1:3]), region_label(segments[3]) if len(segments) == 4 else None)


def region_label(text: str) -> str:
    """A region label in the catalogue's spelling: `global` in lower case, UN/LOCODEs in upper case."""
    if not text.isascii():  # beyond ASCII, letters such as the long s become plain ones in upper case
        return text
    return GLOBAL if text.lower() == GLOBAL else text.upper()


def _alias_name(text: str) -> str:
    name = text.removeprefix(f"{ALIAS}/")
    if name == text or not ALIAS_NAME.fullmatch(name):
        raise InvalidAliasName.of_field("model", f"must have {ALIAS_RULE} after alias/, and {shown(text)!r} does not.")
    return name


def shown(text: str) -> str:
    """Client text in a message, kept short."""
    return text if len(text) <= 200 else text[:200] + "…"
