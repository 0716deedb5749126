"""`POST /v1/aliases` accepts three forms of targets and checks its rules in order (docs/api.md#aliases)."""

import io
import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounts.models import Account
from aliases.models import Alias, AliasEvent
from catalogue.models import Region
from catalogue.routing import quota
from tests.aliases.caller import (
    ALIASES,
    ECHO,
    EXISTS,
    FIELDS,
    INVALID,
    INVALID_NAME,
    INVALID_TARGET,
    LIMIT_REACHED,
    Caller,
)
from tests.factories import new_account

RULE = "1-64 characters of a-z, 0-9, - and _, starting with a letter or digit"
FORMS: list[dict[str, Any]] = [
    {"provider": "sim", "canonical_id": "test/echo", "locode": "FRPAR"},
    {"target": {"provider": "sim", "canonical_id": "test/echo", "locode": "FRPAR"}},
    {"target": "sim/test/echo/FRPAR"},
]
GLOBAL_FORMS: list[dict[str, Any]] = [
    {"provider": "sim", "canonical_id": "test/{slug}"},
    {"target": {"provider": "sim", "canonical_id": "test/{slug}"}},
    {"target": "sim/test/{slug}"},
]


def filled(form: Any, slug: str) -> Any:
    """Returns the form with this model's slug."""
    if isinstance(form, dict):
        return {name: filled(value, slug) for name, value in form.items()}
    return form.replace("{slug}", slug)


@pytest.mark.parametrize("form", [*FORMS, FORMS[0] | {"locode": "frpar"}, {"target": "sim/test/echo/FrPar"}], ids=str)
def test_a_target_has_three_forms_and_its_region_any_case(caller: Caller, form: dict[str, Any]) -> None:
    reply = caller.post(name="fast", **form)
    assert reply.status == 201
    assert set(reply.body) == FIELDS
    assert {name: reply.body[name] for name in FIELDS - {"id", "created_at", "updated_at"}} == {
        "name": "fast",
        "full_name": "alias/fast",
        "provider": "sim",
        "canonical_id": "test/echo",
        "locode": "FRPAR",
        "target": "sim/test/echo/FRPAR",
        "fallbacks": [],
    }
    assert reply.headers["Content-Type"] == "application/json"


def test_it_has_an_id_and_the_time_of_its_creation(caller: Caller) -> None:
    created = caller.create()
    assert uuid.UUID(created["id"]) == Alias.objects.get().pk
    assert created["created_at"] == created["updated_at"]
    assert created["created_at"].endswith("Z")
    age = datetime.now(UTC) - datetime.fromisoformat(created["created_at"])
    assert timedelta(0) <= age < timedelta(minutes=1)


def test_it_is_noted_as_an_event(caller: Caller) -> None:
    caller.create()
    assert caller.events("fast") == [{"event_type": "created", "new_name": "fast", "new_target": ECHO}]


@pytest.mark.parametrize("form", GLOBAL_FORMS)
def test_without_a_region_it_is_global_in_every_form(caller: Caller, form: dict[str, Any]) -> None:
    body = caller.post(name="fast", **filled(form, "worldwide")).body
    assert (body["locode"], body["target"]) == ("global", "sim/test/worldwide/global")


@pytest.mark.parametrize("form", GLOBAL_FORMS)
def test_a_model_that_is_only_regional_names_its_regions(caller: Caller, form: dict[str, Any]) -> None:
    reply = caller.post(name="fast", **filled(form, "echo"))
    assert reply.refusal == INVALID_TARGET
    assert "served only in specific regions (FRPAR, DEFRA)" in reply.message
    assert not Alias.objects.exists()


def test_the_synthesized_region_is_global(caller: Caller) -> None:
    assert caller.create(target="sim/test/global-only")["target"] == "sim/test/global-only/global"


@pytest.mark.parametrize(
    ("body", "target"),
    [
        ({"provider": "sim", "canonical_id": "test/echo", "locode": "DEFRA", "target": ECHO}, "sim/test/echo/DEFRA"),
        ({"locode": "DEFRA", "target": ECHO}, "sim/test/echo/DEFRA"),
        ({"canonical_id": "test/chunks", "target": ECHO}, "sim/test/chunks/FRPAR"),
        ({"provider": "sim", "canonical_id": "test/chunks", "target": ECHO}, "sim/test/chunks/FRPAR"),
        (
            {"provider": "simus", "locode": "USQAS", "target": {"provider": "sim", "canonical_id": "test/echo"}},
            "simus/test/echo/USQAS",
        ),
        ({"provider": None, "canonical_id": None, "locode": None, "target": ECHO}, ECHO),
        ({"provider": "", "canonical_id": "", "locode": "", "target": ECHO}, ECHO),
        ({"provider": "sim", "canonical_id": "test/echo", "locode": "FRPAR", "target": ""}, ECHO),
        ({"target": {"provider": "sim", "canonical_id": "test/worldwide", "locode": ""}}, "sim/test/worldwide/global"),
        (
            {"target": {"provider": "sim", "canonical_id": "test/worldwide", "locode": None}},
            "sim/test/worldwide/global",
        ),
    ],
)
def test_the_flat_field_wins_if_they_disagree(caller: Caller, body: dict[str, Any], target: str) -> None:
    assert caller.post(name="fast", **body).body["target"] == target


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"target": None},
        {"provider": "sim"},
        {"canonical_id": "test/echo"},
        {"locode": "FRPAR"},
        {"target": {}},
        {"target": {"provider": "sim"}},
        {"target": {"canonical_id": "test/echo", "locode": "FRPAR"}},
        {"target": ""},
        {"target": "sim"},
        {"target": "sim/test"},
        {"target": "sim/test/echo/FRPAR/more"},
        {"target": "sim//echo"},
        {"target": "/test/echo"},
        {"target": "sim/test/echo/"},
        {"target": 5},
        {"target": ["sim", "test/echo", "FRPAR"]},
        {"target": True},
        {"provider": "", "canonical_id": "test/echo"},
        {"provider": 5, "canonical_id": "test/echo"},
        {"provider": ["sim"], "canonical_id": "test/echo"},
        {"provider": "sim", "canonical_id": {"id": "test/echo"}},
        {"provider": "sim", "canonical_id": "test/echo", "locode": 1},
        {"provider": "sim", "canonical_id": "x" * 1_000_000},
        {"provider": "sim", "canonical_id": "test/echo", "locode": "FRPAR", "target": 5},
    ],
)
def test_other_shapes_are_refused_with_the_rule(caller: Caller, body: dict[str, Any]) -> None:
    reply = caller.post(name="fast", **body)
    assert reply.refusal == INVALID_TARGET
    if body.get("target") not in ("sim//echo", "sim/test/echo/", "/test/echo"):
        assert "needs `provider` and `canonical_id`" in reply.message
        assert "defaults to `global`" in reply.message
        assert "must send all of them" in reply.message
    assert len(reply.message) < 1000
    assert not AliasEvent.objects.exists()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("sim/test/absent/FRPAR", "Provider 'sim' does not offer model 'test/absent'"),
        ("absent/test/echo/FRPAR", "Provider 'absent' does not offer"),
        ("auto/test/echo", "automatic routing is not available for aliases"),
        ("alias/test/echo", "Provider 'alias' does not offer"),
        ("SIM/test/echo/FRPAR", "Provider 'SIM' does not offer"),
        ("sim/test/echo/USQAS", "is not available in region 'USQAS'"),
        ("sim/test/echo/\x00", "is not available in region"),
        ("sim/test/half-closed/DEFRA", "is not available in region 'DEFRA'"),
        ("sim/test/resting-half/DEFRA", "is not available in region 'DEFRA'"),
        ("sim/test/gone/FRPAR", "is disabled"),
        ("sim/test/retired/FRPAR", "is disabled"),
        ("sim/test/unpriced/FRPAR", "has no price"),
        ("sim/test/pounds/FRPAR", "no exchange rate from GBP"),
        ("nokey/test/echo/FRPAR", "no credentials configured"),
        ("sim/test/realtime/FRPAR", "modality 'realtime'"),
        ("sim/test/unknown-modality/FRPAR", "an unknown modality"),
    ],
)
def test_what_requests_could_not_be_routed_to_is_refused_in_the_routers_words(
    caller: Caller, target: str, words: str
) -> None:
    reply = caller.post(name="fast", target=target)
    assert reply.refusal == INVALID_TARGET
    assert words in reply.message
    assert caller.names() == []


@pytest.mark.parametrize("slug", ["completion", "embedding", "dollars", "resting"])
def test_every_modality_of_an_endpoint_and_the_soft_disabled_will_do(caller: Caller, slug: str) -> None:
    assert caller.create(target=f"sim/test/{slug}/FRPAR")["canonical_id"] == f"test/{slug}"


def test_a_target_may_be_held_by_its_quota_for_now(caller: Caller) -> None:
    region = Region.objects.get(model__canonical_id="test/quota")
    quota.spend(region, quota.day_of(timezone.now()))
    assert caller.create(target="sim/test/quota/FRPAR")["locode"] == "FRPAR"


def test_a_target_is_priced_in_the_accounts_own_currency(served: None) -> None:
    francs = Caller.of(new_account(currency="CHF"))
    reply = francs.post(name="fast", target=ECHO)
    assert reply.refusal == INVALID_TARGET
    assert "no exchange rate from EUR to CHF" in reply.message


@pytest.mark.parametrize("name", ["a", "7", "a" * 64, "0-_", "gpt-4_1", "stats", "alias", "null"])
def test_a_name_within_the_rule_is_taken(caller: Caller, name: str) -> None:
    assert caller.create(name)["full_name"] == f"alias/{name}"


def test_a_name_is_lowercased(caller: Caller) -> None:
    assert caller.create("Fast-GPT_4")["name"] == "fast-gpt_4"
    assert caller.events("fast-gpt_4")[0]["new_name"] == "fast-gpt_4"


NAMES = ["", "-fast", "_fast", "a" * 65, "fa st", " fast", "fast\n", "fa.st", "fa/st", "alias/fast", "fäst", "fast\x00"]


@pytest.mark.parametrize("name", [*NAMES, "\N{KELVIN SIGN}", "\N{FULLWIDTH LATIN SMALL LETTER A}", "٣"])
def test_a_name_outside_the_rule_is_refused_with_it(caller: Caller, name: str) -> None:
    reply = caller.post(name=name, target=ECHO)
    assert reply.refusal == INVALID_NAME
    assert reply.message == f"`name` must have {RULE}."


@pytest.mark.parametrize("name", [None, 5, True, 1.5, ["fast"], {"name": "fast"}])
def test_a_name_is_a_text(caller: Caller, name: object) -> None:
    assert caller.post(name=name, target=ECHO).refusal == INVALID_NAME
    assert caller.post(target=ECHO).refusal == INVALID_NAME


@pytest.mark.parametrize("name", ["fast", "FAST"])
def test_a_name_that_is_taken_is_refused(caller: Caller, name: str) -> None:
    caller.create("fast")
    reply = caller.post(name=name, target="sim/test/chunks/FRPAR")
    assert reply.refusal == EXISTS
    assert "'fast'" in reply.message
    assert Alias.objects.get().target == ECHO


def test_a_name_is_free_in_another_account(caller: Caller, stranger: Caller) -> None:
    caller.create("fast")
    assert stranger.create("fast")["full_name"] == "alias/fast"


def test_five_slots_are_the_default(caller: Caller) -> None:
    for number in range(5):
        caller.create(f"n{number}")
    reply = caller.post(name="more", target=ECHO)
    assert reply.refusal == LIMIT_REACHED
    assert re.search(r"\b5\b", reply.message)
    assert caller.read()["quota"] == {"used": 5, "max": 5}


@pytest.mark.parametrize(("default", "own", "limit"), [(3, None, 3), (3, 1, 1), (1, 3, 3), (5, 0, 0), (0, None, 0)])
def test_the_accounts_own_limit_wins(
    caller: Caller, settings: Settings, default: int, own: int | None, limit: int
) -> None:
    settings.GATEWAY_ALIAS_LIMIT = default
    Account.objects.filter(pk=caller.account.pk).update(alias_limit=own)
    statuses = [caller.post(name=f"n{number}", target=ECHO).status for number in range(limit + 1)]
    assert statuses == [*[201] * limit, 422]
    assert caller.read()["quota"] == {"used": limit, "max": limit}


def test_a_deleted_alias_frees_its_slot(caller: Caller, settings: Settings) -> None:
    settings.GATEWAY_ALIAS_LIMIT = 1
    caller.create("fast")
    caller.delete("fast")
    assert caller.create("other")["name"] == "other"


def test_the_order_is_name_target_taken_limit(caller: Caller, settings: Settings) -> None:
    settings.GATEWAY_ALIAS_LIMIT = 1
    caller.create("fast")
    assert caller.post(name="-", target="nothing").refusal == INVALID_NAME
    assert caller.post(name="fast", target="nothing").refusal == INVALID_TARGET
    assert caller.post(name="fast", target="sim/test/gone/FRPAR").refusal == INVALID_TARGET
    assert caller.post(name="fast", target=ECHO).refusal == EXISTS
    assert caller.post(name="other", target=ECHO).refusal == LIMIT_REACHED


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"fast"', b"null", b"\xff", b'{"name": "fast",}', b'{"n": 99999999999999999999999}']
)
def test_a_body_that_is_no_json_object_is_refused(caller: Caller, body: bytes) -> None:
    assert caller.send("POST", ALIASES, body).refusal == INVALID


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense", ""],
)
def test_json_is_read_whatever_the_content_type(caller: Caller, content_type: str) -> None:
    body = b'{"name": "fast", "target": "sim/test/echo/FRPAR", "unknown": 1}'
    assert caller.send("POST", ALIASES, body, content_type=content_type).status == 201


@pytest.mark.parametrize("path", ["/v1/aliases/", "/api/v1/aliases", "/api/v1/aliases/"])
def test_the_path_has_four_forms(caller: Caller, path: str) -> None:
    assert caller.send("POST", path, {"name": "fast", "target": ECHO}).status == 201
    assert caller.names() == ["fast"]


class SlowBody(io.BytesIO):
    """Notes, at each read, whether this thread holds a database connection."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self.held: list[bool] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.held.append(connection.connection is not None)
        return super().read(size)


@pytest.mark.django_db(transaction=True)
def test_no_connection_is_held_while_a_body_is_waited_for(caller: Caller) -> None:
    content = b'{"name": "fast", "target": "sim/test/echo/FRPAR"}'
    body = SlowBody(content)
    extra: dict[str, Any] = {"wsgi.input": body, "CONTENT_LENGTH": str(len(content))}
    headers = {"Authorization": f"Bearer {caller.token}"}
    assert Client().generic("POST", ALIASES, headers=headers, **extra).status_code == 201
    assert body.held == [False]


def test_a_body_that_is_too_large_is_refused(caller: Caller, settings: Settings) -> None:
    settings.GATEWAY_MAX_BODY_BYTES = 100
    reply = caller.post(name="fast", target=ECHO, more="x" * 100)
    assert reply.refusal == (413, "invalid_request_error", "request_too_large", None)
