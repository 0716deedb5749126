"""`GET /v1/aliases/{name}/history` lists changes newest first, with old and new values."""

import uuid
from datetime import datetime

import pytest

from tests.aliases.caller import ALIASES, CHUNKS, ECHO, Caller

HISTORY = f"{ALIASES}/fast/history"
NO_COUNTS = ["0", "-1", "1000", "1.0", "1e1", "", " 5", "+5", "five", "1_0", "٣", "9" * 400, "null", "0x10"]


def moved(caller: Caller, times: int) -> None:
    """Makes an alias named `fast` that was repointed this many times."""
    caller.create("fast", ECHO)
    for number in range(times):
        caller.patch("fast", target=ECHO if number % 2 else CHUNKS)


def test_it_tells_the_alias_and_what_happened_to_it(caller: Caller) -> None:
    caller.create("first", ECHO)
    caller.patch("first", target=CHUNKS)
    alias = caller.patch("first", name="fast").body
    body = caller.read(HISTORY)
    assert set(body) == {"alias", "events"}
    assert body["alias"] == alias
    assert caller.events("fast") == [
        {"event_type": "renamed", "old_name": "first", "new_name": "fast"},
        {"event_type": "repointed", "old_target": ECHO, "new_target": CHUNKS},
        {"event_type": "created", "new_name": "first", "new_target": ECHO},
    ]


def test_events_have_ids_and_times_newest_first(caller: Caller) -> None:
    moved(caller, 4)
    events = caller.read(HISTORY)["events"]
    assert len({uuid.UUID(event["id"]) for event in events}) == 5
    times = [datetime.fromisoformat(event["created_at"]) for event in events]
    assert times == sorted(times, reverse=True)
    assert events[0]["created_at"].endswith("Z")


def test_fifty_are_the_default(caller: Caller) -> None:
    moved(caller, 50)
    assert len(caller.read(HISTORY)["events"]) == 50
    assert len(caller.read(f"{HISTORY}?limit=51")["events"]) == 51


@pytest.mark.parametrize(("limit", "events"), [("1", 1), ("2", 2), ("200", 4)])
def test_a_limit_keeps_the_newest(caller: Caller, limit: str, events: int) -> None:
    moved(caller, 3)
    everything = caller.read(HISTORY)["events"]
    assert caller.read(f"{HISTORY}?limit={limit}")["events"] == everything[:events]


@pytest.mark.parametrize("limit", [*NO_COUNTS, "201"])
def test_a_limit_out_of_bounds_is_refused_and_not_clamped(caller: Caller, limit: str) -> None:
    caller.create("fast")
    reply = caller.get(f"{HISTORY}?limit={limit}")
    assert reply.refusal == (400, "invalid_request_error", "invalid_request_error", "limit")
    assert reply.message == "`limit` must be a whole number from 1 to 200."


def test_a_recreated_name_has_a_history_of_its_own(caller: Caller) -> None:
    moved(caller, 2)
    caller.delete("fast")
    caller.create("fast", ECHO)
    assert [event["event_type"] for event in caller.events("fast")] == ["created"]


def test_two_aliases_that_swap_their_names_keep_their_histories(caller: Caller) -> None:
    caller.create("one", ECHO)
    caller.create("two", CHUNKS)
    for old, new in (("one", "spare"), ("two", "one"), ("spare", "two")):
        caller.patch(old, name=new)
    assert caller.events("two")[-1] == {"event_type": "created", "new_name": "one", "new_target": ECHO}
    assert caller.events("one")[-1] == {"event_type": "created", "new_name": "two", "new_target": CHUNKS}
