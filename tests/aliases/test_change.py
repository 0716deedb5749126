"""`PATCH /v1/aliases/{name}` renames, repoints, or both at once (docs/api.md#changing-aliases)."""

from typing import Any

import pytest
from pytest_django import Settings

from accounts import keys
from accounts.models import Account, KeyKind
from aliases.models import Alias, AliasEvent
from tests.aliases.caller import ALIASES, CHUNKS, ECHO, EXISTS, INVALID, INVALID_NAME, INVALID_TARGET, NOT_FOUND, Caller
from tests.factories import new_account


def test_a_rename_keeps_everything_else(caller: Caller) -> None:
    created = caller.create("fast")
    renamed = caller.patch("fast", name="quick")
    assert renamed.status == 200
    assert renamed.body["updated_at"] > created["updated_at"]
    expected = {"name": "quick", "full_name": "alias/quick", "updated_at": renamed.body["updated_at"]}
    assert renamed.body == created | expected
    assert caller.get(f"{ALIASES}/fast").refusal == NOT_FOUND
    assert caller.read(f"{ALIASES}/quick") == renamed.body
    assert caller.events("quick")[0] == {"event_type": "renamed", "old_name": "fast", "new_name": "quick"}


@pytest.mark.parametrize("target", ["", {}, {"provider": "", "canonical_id": "", "locode": ""}])
def test_a_name_with_an_empty_target_is_only_a_rename(caller: Caller, target: object) -> None:
    caller.create("fast", ECHO)
    renamed = caller.patch("fast", name="quick", provider="", canonical_id="", locode="", target=target)
    assert (renamed.status, renamed.body["name"], renamed.body["target"]) == (200, "quick", ECHO)
    assert [event["event_type"] for event in caller.events("quick")] == ["renamed", "created"]


def test_a_repoint_keeps_everything_else(caller: Caller) -> None:
    created = caller.create("fast", ECHO)
    repointed = caller.patch("fast", target=CHUNKS).body
    words = {"canonical_id": "test/chunks", "locode": "DEFRA", "target": CHUNKS}
    assert repointed == created | words | {"updated_at": repointed["updated_at"]}
    assert repointed["updated_at"] > created["updated_at"]
    assert caller.events("fast")[0] == {"event_type": "repointed", "old_target": ECHO, "new_target": CHUNKS}


def test_both_at_once_are_two_events_of_one_moment(caller: Caller) -> None:
    caller.create("fast", ECHO)
    changed = caller.patch("fast", name="quick", target=CHUNKS).body
    assert (changed["name"], changed["target"]) == ("quick", CHUNKS)
    assert caller.events("quick") == [
        {"event_type": "repointed", "old_target": ECHO, "new_target": CHUNKS},
        {"event_type": "renamed", "old_name": "fast", "new_name": "quick"},
        {"event_type": "created", "new_name": "fast", "new_target": ECHO},
    ]
    newest, second, _ = caller.read(f"{ALIASES}/quick/history")["events"]
    assert newest["created_at"] == second["created_at"] == changed["updated_at"]


@pytest.mark.parametrize(
    "form",
    [
        {"provider": "sim", "canonical_id": "test/chunks", "locode": "DEFRA"},
        {"target": {"provider": "sim", "canonical_id": "test/chunks", "locode": "DEFRA"}},
        {"target": CHUNKS},
        {"locode": "DEFRA", "target": "sim/test/chunks/FRPAR"},
    ],
)
def test_a_repoint_takes_the_same_forms(caller: Caller, form: dict[str, Any]) -> None:
    caller.create("fast", ECHO)
    assert caller.patch("fast", **form).body["target"] == CHUNKS


WITHOUT_LOCODE: list[dict[str, Any]] = [
    {"provider": "sim", "canonical_id": "test/worldwide"},
    {"provider": "sim", "canonical_id": "test/worldwide", "locode": "", "target": ""},
    {"target": {"provider": "sim", "canonical_id": "test/worldwide", "locode": None}},
    {"target": "sim/test/worldwide"},
]


@pytest.mark.parametrize("form", WITHOUT_LOCODE)
@pytest.mark.parametrize("current", [ECHO, "sim/test/worldwide/FRPAR"])
def test_a_pinned_alias_does_not_leave_its_place_for_want_of_a_locode(
    caller: Caller, current: str, form: dict[str, Any]
) -> None:
    created = caller.create("fast", current)
    reply = caller.patch("fast", name="quick", **form)
    assert reply.refusal == INVALID_TARGET
    assert "send the locode of a place, or `global` to leave FRPAR" in reply.message
    assert caller.read()["aliases"] == [created]


@pytest.mark.parametrize("form", WITHOUT_LOCODE)
def test_an_alias_at_global_is_repointed_without_a_locode(caller: Caller, form: dict[str, Any]) -> None:
    caller.create("fast", "sim/test/worldwide/FRPAR")
    assert caller.patch("fast", target="sim/test/worldwide/global").body["locode"] == "global"
    assert caller.patch("fast", **form).body["target"] == "sim/test/worldwide/global"
    assert caller.patch("fast", provider="sim", canonical_id="test/echo").refusal == INVALID_TARGET


@pytest.mark.parametrize(
    "body",
    [
        {"locode": "DEFRA"},
        {"provider": "simkey"},
        {"canonical_id": "test/chunks"},
        {"canonical_id": "test/chunks", "locode": "DEFRA"},
        {"target": {"locode": "DEFRA"}},
        {"provider": "sim", "canonical_id": "", "locode": "DEFRA"},
        {"target": "sim/test"},
        {"target": 5},
        {"target": "sim/test/gone/FRPAR"},
        {"target": "sim/test/echo/USQAS"},
        {"target": "sim/test/realtime/FRPAR"},
        {"name": "quick", "locode": "DEFRA"},
        {"name": "quick", "target": "sim/test/gone/FRPAR"},
    ],
)
def test_a_repoint_that_is_not_whole_or_not_routable_changes_nothing(caller: Caller, body: dict[str, Any]) -> None:
    created = caller.create("fast", ECHO)
    assert caller.patch("fast", **body).refusal == INVALID_TARGET
    assert caller.read() == {"aliases": [created], "quota": {"used": 1, "max": 5}}
    assert AliasEvent.objects.count() == 1


def test_a_repoint_is_priced_in_the_accounts_own_currency(served: None) -> None:
    dollars = Caller.of(new_account(currency="USD"))
    dollars.create("fast", ECHO)
    assert dollars.patch("fast", target="sim/test/dollars/FRPAR").status == 200
    assert dollars.patch("fast", target="sim/test/pounds/FRPAR").refusal == INVALID_TARGET


@pytest.mark.parametrize("target", ["sim/test/resting/FRPAR", "sim/test/embedding/FRPAR"])
def test_a_repoint_accepts_every_target_that_a_create_accepts(caller: Caller, target: str) -> None:
    caller.create("fast", ECHO)
    assert caller.patch("fast", target=target).body["target"] == target


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": None},
        {"target": None},
        {"target": ""},
        {"target": {}},
        {"name": None, "provider": None},
        {"provider": "", "canonical_id": "", "locode": "", "target": {"provider": ""}},
        {"id": "x"},
    ],
)
def test_neither_is_refused(caller: Caller, body: dict[str, Any]) -> None:
    created = caller.create("fast")
    assert caller.patch("fast", **body).refusal == INVALID
    assert caller.read(f"{ALIASES}/fast") == created


@pytest.mark.parametrize("name", ["", "-x", "a" * 65, "a b", "ä", "\N{KELVIN SIGN}", 5, True, [], "alias/x"])
def test_a_name_outside_the_rule_is_refused(caller: Caller, name: object) -> None:
    caller.create("fast")
    assert caller.patch("fast", name=name).refusal == INVALID_NAME
    assert caller.patch("fast", name=name, target=CHUNKS).refusal == INVALID_NAME
    assert Alias.objects.get().target == ECHO


def test_a_new_name_is_lowercased(caller: Caller) -> None:
    caller.create("fast")
    assert caller.patch("fast", name="QUICK").body["full_name"] == "alias/quick"


def test_a_new_name_that_is_taken_is_refused_and_nothing_moves(caller: Caller) -> None:
    fast, quick = caller.create("fast"), caller.create("quick")
    for body in ({"name": "quick"}, {"name": "QUICK"}, {"name": "quick", "target": CHUNKS}):
        reply = caller.patch("fast", **body)
        assert reply.refusal == EXISTS
        assert "'quick'" in reply.message
    assert caller.read()["aliases"] == [fast, quick]
    assert len(caller.events("fast")) == 1


def test_the_order_is_name_target_taken(caller: Caller) -> None:
    caller.create("fast")
    caller.create("quick")
    assert caller.patch("fast", name="-", target="nothing").refusal == INVALID_NAME
    assert caller.patch("fast", name="quick", target="nothing").refusal == INVALID_TARGET
    assert caller.patch("fast", name="quick", target=CHUNKS).refusal == EXISTS


def test_an_absent_alias_is_reported_before_any_other_fault(caller: Caller) -> None:
    assert caller.patch("absent", name="-", target="nothing").refusal == NOT_FOUND
    assert caller.send("PATCH", f"{ALIASES}/absent", b"{").refusal == NOT_FOUND


@pytest.mark.parametrize(
    "body", [{"name": "fast"}, {"name": "FAST"}, {"target": ECHO}, {"name": "fast", "target": ECHO}]
)
def test_a_change_that_changes_nothing_writes_no_event(caller: Caller, body: dict[str, Any]) -> None:
    created = caller.create("fast", ECHO)
    reply = caller.patch("fast", **body)
    assert (reply.status, reply.body) == (200, created)
    assert len(caller.events("fast")) == 1


def test_half_a_change_writes_half_of_the_events(caller: Caller) -> None:
    caller.create("fast", ECHO)
    caller.patch("fast", name="fast", target=CHUNKS)
    caller.patch("fast", name="quick", target=CHUNKS)
    assert [event["event_type"] for event in caller.events("quick")] == ["renamed", "repointed", "created"]


def test_a_rename_needs_no_free_slot(caller: Caller, settings: Settings) -> None:
    settings.GATEWAY_ALIAS_LIMIT = 1
    caller.create("fast")
    assert caller.patch("fast", name="quick").status == 200


def test_an_alias_whose_route_has_gone_can_still_be_renamed(caller: Caller) -> None:
    caller.create("fast")
    Alias.objects.update(canonical_id="test/gone")
    assert caller.patch("fast", name="quick").body["target"] == "sim/test/gone/FRPAR"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(caller: Caller, body: bytes) -> None:
    caller.create("fast")
    assert caller.send("PATCH", f"{ALIASES}/fast", body).refusal == INVALID


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
def test_json_is_read_whatever_the_content_type(caller: Caller, content_type: str) -> None:
    caller.create("fast")
    body = b'{"name": "quick"}'
    assert caller.send("PATCH", f"{ALIASES}/fast", body, content_type=content_type).body["name"] == "quick"


def test_only_management_keys_change_aliases_that_owners_keep_to_themselves(caller: Caller) -> None:
    caller.create("fast", ECHO)
    Account.objects.filter(pk=caller.account.pk).update(aliases_reserved_at="2026-11-01T00:00:00Z")
    refused = (403, "permission_error", "key_kind_not_allowed", None)
    assert caller.patch("fast", target=CHUNKS).refusal == refused
    assert caller.send("DELETE", f"{ALIASES}/fast").refusal == refused
    assert caller.send("POST", ALIASES, {"name": "mine", "target": ECHO}).refusal == refused
    assert caller.read(f"{ALIASES}/fast")["target"] == ECHO
    manager = Caller(caller.account, *keys.issue(caller.account, name="systems", kind=KeyKind.MANAGEMENT))
    assert manager.patch("fast", target=CHUNKS).status == 200
