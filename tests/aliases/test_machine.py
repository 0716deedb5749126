"""Any sequence of calls has the same results from the API and from a plain model of it."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pytest_django import Settings

from tests.aliases.caller import (
    ALIASES,
    CHUNKS,
    ECHO,
    EXISTS,
    INVALID,
    INVALID_NAME,
    INVALID_TARGET,
    LIMIT_REACHED,
    NOT_FOUND,
    Caller,
    Json,
    Reply,
)

LIMIT = 3
Refusal = tuple[int, str, str | None, str | None]
NAMES = st.sampled_from(["a", "b", "c", "d", "A", "-"])
WORLDWIDE = "sim/test/worldwide"
GLOBAL = f"{WORLDWIDE}/global"
TARGETS = st.sampled_from([ECHO, CHUNKS, GLOBAL, WORLDWIDE, "sim/test/gone/FRPAR"])
MEANT = {ECHO: ECHO, CHUNKS: CHUNKS, GLOBAL: GLOBAL, WORLDWIDE: GLOBAL}
BOUNDS = hypothesis.settings(
    max_examples=4,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    database=None,
)


@dataclass
class Entry:
    """Models an alias with its events, newest first."""

    id: str
    target: str
    events: list[Json] = field(default_factory=list)

    def note(self, event_type: str, **values: str) -> None:
        self.events.insert(0, {"event_type": event_type, **values})


def is_name(name: str) -> bool:
    return name != "-"


class AliasMachine(RuleBasedStateMachine):
    """Calls the API for one account, with another account that must not change."""

    new_caller: Callable[[], Caller] = Caller.of

    def __init__(self) -> None:
        super().__init__()
        self.caller, self.stranger = self.new_caller(), self.new_caller()
        self.untouched = self.stranger.create("a")
        self.model: dict[str, Entry] = {}
        self.gone: set[str] = set()
        for name in ("a", "b"):  # or most changes would find nothing
            self.create(name, ECHO)

    @rule(name=NAMES, goal=TARGETS)
    def create(self, name: str, goal: str) -> None:
        reply = self.caller.post(name=name, target=goal)
        key = name.lower()
        if self.refused(reply, self.why_no_create(name, goal)):
            return
        assert reply.status == 201
        entry = Entry(reply.body["id"], MEANT[goal])
        assert entry.id not in self.gone
        entry.note("created", new_name=key, new_target=entry.target)
        self.model[key] = entry

    def why_no_create(self, name: str, target: str) -> Refusal | None:
        if not is_name(name):
            return INVALID_NAME
        if target not in MEANT:
            return INVALID_TARGET
        if name.lower() in self.model:
            return EXISTS
        return LIMIT_REACHED if len(self.model) >= LIMIT else None

    @rule(name=NAMES, new_name=st.none() | NAMES, goal=st.none() | TARGETS)
    def change(self, name: str, new_name: str | None, goal: str | None) -> None:
        path = name
        reply = self.caller.patch(path, **given(name=new_name, target=goal))
        if self.refused(reply, self.why_no_change(name.lower(), new_name, goal)):
            return
        assert reply.status == 200
        key = name.lower()
        entry = self.model.pop(key)
        renamed = key if new_name is None else new_name.lower()
        if renamed != key:
            entry.note("renamed", old_name=key, new_name=renamed)
        if goal is not None and MEANT[goal] != entry.target:
            entry.note("repointed", old_target=entry.target, new_target=MEANT[goal])
            entry.target = MEANT[goal]
        self.model[renamed] = entry

    def why_no_change(self, key: str, new_name: str | None, target: str | None) -> Refusal | None:
        if key not in self.model:
            return NOT_FOUND
        if new_name is not None and not is_name(new_name):
            return INVALID_NAME
        if target is not None and target not in MEANT:
            return INVALID_TARGET
        if new_name is None and target is None:
            return INVALID
        if target == WORLDWIDE and self.model[key].target != GLOBAL:
            return INVALID_TARGET
        is_taken = new_name is not None and new_name.lower() != key and new_name.lower() in self.model
        return EXISTS if is_taken else None

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        reply = self.caller.delete(name)
        if self.refused(reply, None if name.lower() in self.model else NOT_FOUND):
            return
        assert (reply.status, reply.body) == (204, None)
        self.gone.add(self.model.pop(name.lower()).id)

    @rule(name=NAMES)
    def read(self, name: str) -> None:
        path = f"{ALIASES}/{name}"
        entry = self.model.get(name.lower())
        for tail in ("", "/history", "/stats"):
            reply = self.caller.get(path + tail)
            if not self.refused(reply, NOT_FOUND if entry is None else None):
                assert entry is not None
                alias = reply.body["alias"] if tail else reply.body
                assert (alias["id"], alias["target"]) == (entry.id, entry.target)

    @invariant()
    def the_list_is_the_models(self) -> None:
        body = self.caller.read()
        listed = {alias["name"]: (alias["id"], alias["target"]) for alias in body["aliases"]}
        assert listed == {name: (entry.id, entry.target) for name, entry in self.model.items()}
        assert list(listed) == sorted(listed)
        assert body["quota"] == {"used": len(self.model), "max": LIMIT}

    def teardown(self) -> None:
        for name, entry in self.model.items():
            assert self.caller.events(name) == entry.events
            uuid.UUID(entry.id)
        assert self.stranger.read()["aliases"] == [self.untouched]

    @staticmethod
    def refused(reply: Reply, expected: Refusal | None) -> bool:
        """Tells whether a refusal is expected, after checking the reply's refusal if so."""
        if expected is not None:
            assert reply.refusal == expected
        return expected is not None


def given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def test_the_api_does_what_its_model_says(served: None, settings: Settings) -> None:
    settings.GATEWAY_ALIAS_LIMIT = LIMIT
    run_state_machine_as_test(AliasMachine, settings=BOUNDS)
