"""Lists the models that `POST /v1/messages` serves, in the form of Anthropic's API."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gateway.errors import InvalidRequest
from gateway.server.turns import in_turns

from .listing import Info, PerSnapshot, View, autos, listed, model_info
from .routing.routes import Snapshot

SERVED = ("chat", "completion", None)  # modalities; None if the candidates of an `auto/…` entry differ
USUAL_LIMIT, MOST = 20, 1000


def page(snapshot: Snapshot, view: View, query: Mapping[str, str]) -> Info:
    """Returns the page that `limit`, `after_id` or `before_id` asks for. Raises InvalidRequest."""
    entries, positions = _listings.of(snapshot, view)
    limit = _limit(query.get("limit"))
    if (before := query.get("before_id")) is not None:
        end = _position(positions, "before_id", before)
        start = max(0, end - limit)
        has_more = start > 0
    else:
        after = query.get("after_id")
        start = 0 if after is None else _position(positions, "after_id", after) + 1
        end = start + limit
        has_more = end < len(entries)
    data = entries[start:end]
    return {
        "data": data,
        "has_more": has_more,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
    }


def entry(info: Info) -> Info:
    """Returns a ModelInfo in the form of Anthropic's API, where unknown figures are null."""
    return {
        "type": "model",
        "id": info["id"],
        "display_name": info.get("name", info["id"]),
        "created_at": datetime.fromtimestamp(info["created"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": info.get("context_length"),
        "max_tokens": info.get("max_output_tokens"),
    }


def _entries(snapshot: Snapshot, view: View) -> tuple[list[Info], dict[str, int]]:
    """Returns all entries, and the position of each by its id."""
    explicit = [model_info(snapshot, view, offer, routes) for offer, routes in listed(snapshot, view)]
    infos = in_turns([*explicit, *autos(snapshot, view)])
    entries = [entry(info) for info in infos if info.get("modality") in SERVED]
    return entries, {each["id"]: position for position, each in enumerate(entries)}


_listings: PerSnapshot[tuple[list[Info], dict[str, int]]] = PerSnapshot(_entries)


def _limit(given: Any) -> int:
    if given is None:
        return USUAL_LIMIT
    if not (isinstance(given, str) and given.isascii() and given.isdigit() and 1 <= int(given[:5]) <= MOST):
        raise InvalidRequest.of_field("limit", f"must be a whole number from 1 to {MOST}.")
    return int(given[:5])


def _position(positions: Mapping[str, int], name: str, model_id: str) -> int:
    if model_id not in positions:
        raise InvalidRequest.of_field(name, "must be the id of a model in this list.")
    return positions[model_id]
