"""Suggests ids that resemble an unknown one, by an index of three-letter pieces: clients may request thousands."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from difflib import SequenceMatcher, get_close_matches

from ..models import WITH_ENDPOINT
from .model_ids import AUTO
from .routes import Snapshot

MOST_NAMED = 3
LONGEST = 80  # characters of the unknown id that are examined
COMPARED = 8  # candidates that are compared letter by letter
REMEMBERED = 500  # unknown ids whose suggestions are kept
ALIKE = 0.6  # the least similarity, from 0 to 1
EVERYTHING = "See `GET /v1/models`."


class IdIndex:
    """Indexes the ids that a snapshot serves."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.serial = snapshot.serial
        self._of_piece: dict[str, list[str]] = defaultdict(list)
        self._known: dict[str, list[str]] = {}
        for id_ in _servable(snapshot):
            for piece in _pieces(id_):
                self._of_piece[piece].append(id_)

    def nearest(self, asked: str) -> list[str]:
        asked = asked[:LONGEST].lower().strip("/ ")
        asked = "/".join(asked.split("/")[:3])  # without the region
        if asked not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[asked] = self._found(asked)
        return self._known[asked]

    def _found(self, asked: str) -> list[str]:
        is_auto = asked.startswith(f"{AUTO}/")
        shared: Counter[str] = Counter()
        for piece in _pieces(asked):
            shared.update(self._of_piece.get(piece, ()))
        # Among ids that share equally many pieces, prefers short ones.
        best = heapq.nsmallest(
            COMPARED,
            ((-pieces, len(id_), id_) for id_, pieces in shared.items() if id_.startswith(f"{AUTO}/") == is_auto),
        )
        scored = sorted((-_likeness(asked, id_), id_) for *_, id_ in best)
        return [id_ for score, id_ in scored if -score >= ALIKE][:MOST_NAMED]


_ids: IdIndex | None = None


def suggestion(snapshot: Snapshot, asked: str) -> str:
    """Returns sentences to add to an error's message."""
    global _ids  # noqa: PLW0603  # the index of the worker's current snapshot
    if _ids is None or _ids.serial != snapshot.serial:
        _ids = IdIndex(snapshot)
    return f"{question(_ids.nearest(asked))}{EVERYTHING}"


def question(ids: Sequence[str]) -> str:
    """Returns `Did you mean …? ` with these ids; empty without ids."""
    if not ids:
        return ""
    *others, last = (f"`{id_}`" for id_ in ids)
    return f"Did you mean {', '.join(others)}{' or ' if others else ''}{last}? "


def near_names(asked: str, names: Sequence[str]) -> list[str]:
    """Returns up to three similar names, the most similar first."""
    return get_close_matches(asked, names, MOST_NAMED, ALIKE)


def _servable(snapshot: Snapshot) -> Iterable[str]:
    """Yields the ids that are served now, by the catalogue."""
    today, automatic = datetime.now(UTC).date(), set()
    for offer in snapshot.offers.values():
        is_served = any(route.is_served for route in offer.routes.values())
        if offer.upstream.configured and offer.state == "served" and is_served and not offer.is_disabled(today):
            yield offer.id
            if offer.modality in WITH_ENDPOINT:
                automatic.add(f"{AUTO}/{offer.canonical_id}")
    yield from sorted(automatic)


def _pieces(text: str) -> set[str]:
    """Returns all pieces of three letters, with a space at the beginning and at the end."""
    padded = f" {text} "
    return {padded[start : start + 3] for start in range(len(padded) - 2)}


def _likeness(asked: str, id_: str) -> float:
    """Returns a similarity from 0 to 1, the mean over the whole ids and the models' own names."""
    name_asked, name = asked.rpartition("/")[2], id_.rpartition("/")[2]
    return (SequenceMatcher(None, asked, id_).ratio() + SequenceMatcher(None, name_asked, name).ratio()) / 2
