"""Parses the ids of models: explicit ones, auto ids and aliases.

Unknown ids are refused in `pinning` (explicit ones), `selection` (auto ids) and `aliases.resolve`.
"""

import re
from dataclasses import dataclass

from gateway.errors import InvalidAliasName, InvalidRequest

GLOBAL = "global"
AUTO = "auto"
ALIAS = "alias"
ALIAS_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
ALIAS_RULE = "1-64 characters of a-z, 0-9, - and _, starting with a letter or digit"


@dataclass(frozen=True, slots=True)
class ExplicitId:
    """Names one route; without a `locode`, in the model's default region."""

    provider: str
    canonical_id: str
    locode: str | None


@dataclass(frozen=True, slots=True)
class AutoId:
    """Names a canonical model, and leaves the route to automatic routing."""

    canonical_id: str

    def __str__(self) -> str:
        return f"{AUTO}/{self.canonical_id}"


@dataclass(frozen=True, slots=True)
class AliasId:
    """Names a route by an account's alias."""

    name: str

    def __str__(self) -> str:
        return f"{ALIAS}/{self.name}"


def parse_model_id(text: str) -> ExplicitId | AutoId | AliasId:
    """Parses a `model` string. Raises InvalidRequest and InvalidAliasName."""
    segments = text.split("/")
    if segments[0] == ALIAS:
        name = text.removeprefix(f"{ALIAS}/")
        if name == text or not ALIAS_NAME.fullmatch(name):
            rule = f"must have {ALIAS_RULE} after alias/, and {shown(text)!r} does not."
            raise InvalidAliasName.of_field("model", rule)
        return AliasId(name)
    if "" in segments or len(segments) not in (3, 4):
        hint = f" Alias names are lowercase: alias/{segments[1].lower()}." if _is_loud_alias(segments) else ""
        raise InvalidRequest.of_field(
            "model",
            f"is unknown: {shown(text)!r}. Model ids are provider/creator/model[/locode]: "
            f"received {len(segments)} segment{'' if len(segments) == 1 else 's'}"
            f"{' (an empty one among them)' if '' in segments else ''}.{hint}",
        )
    if segments[0] == AUTO:
        if len(segments) == 4:
            raise InvalidRequest.of_field(
                "model", "must match auto/{creator}/{model}: received 4 segments. To pin a region, name a provider."
            )
        return AutoId("/".join(segments[1:]))
    return ExplicitId(segments[0], "/".join(segments[1:3]), region_label(segments[3]) if len(segments) == 4 else None)


def _is_loud_alias(segments: list[str]) -> bool:
    return len(segments) == 2 and segments[0].lower() == ALIAS and bool(ALIAS_NAME.fullmatch(segments[1].lower()))


def region_label(text: str) -> str:
    """Returns a region in the catalogue's spelling."""
    if not text.isascii():  # in upper case the long s, for example, would become an ordinary one
        return text
    return GLOBAL if text.lower() == GLOBAL else text.upper()


def shown(text: str) -> str:
    """Shortens a client's text for a message."""
    return text if len(text) <= 200 else text[:200] + "…"
