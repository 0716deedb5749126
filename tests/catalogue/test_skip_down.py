"""Automatic routing skips a provider that is down, and one request in 30 seconds probes whether it works again.

The clock is moved by hand. docs/api.md#automatic-routing has the rule.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from catalogue.pricing import EnergyFactors
from catalogue.routing import health
from catalogue.routing.model_ids import AliasId
from catalogue.routing.plan import Needs, Plan, plan_route, read_model_id
from catalogue.routing.routes import Route, Snapshot
from gateway.server.hooks import Periodic, worker_hooks
from tests.factories import forget_health
from tests.routes import offer_of, route, snapshot, upstream

NOON = datetime(2026, 11, 29, 12, 0, 30, tzinfo=UTC)
SECONDS = timedelta(seconds=1)
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def at_noon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget_health()
    at(NOON, monkeypatch)
    yield
    monkeypatch.undo()
    forget_health()


def at(moment: datetime, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(timezone, "now", lambda: moment)


def fails(*slugs: str, times: int = 5) -> None:
    """Notes failed calls of these providers, and computes the resulting statuses."""
    for slug in slugs * times:
        health.note(slug, failed=True, words="It broke.")
    health.flush()
    health.look()


def another_worker(patch: pytest.MonkeyPatch, *, sees: str, since: datetime) -> None:
    """Gives the block another worker's memory, which has seen a provider down since then."""
    patch.setattr(health, "_probes", {})
    patch.setattr(health, "_passed_by", {sees})
    patch.setattr(health, "_down_since", {sees: since})


def at_grams(slug: str, grams: int | None, **company: Any) -> Route:
    return route(upstream(slug, **company), energy=EnergyFactors(None, None, grams))


def served_by(*routes: Route) -> Snapshot:
    return snapshot(*(offer_of(one.upstream, "test/echo", one) for one in routes))


CLEAN, MIDDLE, DIRTY = at_grams("clean", 20), at_grams("middle", 200), at_grams("dirty", 800)
ALL = served_by(CLEAN, MIDDLE, DIRTY)


def asked(catalogue: Snapshot = ALL, model: str = "auto/test/echo", *, may_probe: bool = True) -> Plan:
    wanted = read_model_id(catalogue, model)
    assert not isinstance(wanted, AliasId)
    needs = Needs(("chat",), "chat completions", lambda _: {}, lambda: None, may_probe=may_probe)
    return plan_route(catalogue, wanted, needs, NOON)


def chosen(found: Plan) -> tuple[str, tuple[str, ...]]:
    return found.route.upstream.slug, found.skipped


def test_nothing_is_passed_by_while_all_are_well() -> None:
    fails("middle", times=4)  # too few for a verdict
    assert chosen(asked()) == ("clean", ())


def test_a_provider_that_is_down_is_passed_by() -> None:
    fails("clean")
    found = asked()
    assert chosen(found) == ("middle", ("clean",))
    assert (found.mode, found.reason) == ("auto", "lowest_carbon_intensity")


def test_the_reason_is_that_of_the_choice_among_the_others() -> None:
    fails("clean", "middle")
    found = asked()
    assert chosen(found) == ("dirty", ("clean", "middle"))
    assert found.reason == "only_route"


def test_the_order_does_not_change_if_all_are_down() -> None:
    fails("clean", "middle", "dirty")
    assert chosen(asked()) == ("clean", ())


def test_failover_comes_to_those_that_are_down_last() -> None:
    fails("clean")
    assert [one.upstream.slug for one in asked().others] == ["dirty", "clean"]


def test_a_provider_is_passed_by_with_all_its_regions() -> None:
    acme = upstream("acme")
    paris, oslo = (route(acme, locode=code, energy=EnergyFactors(None, None, 1)) for code in ("FRPAR", "DEFRA"))
    fails("acme")
    found = asked(snapshot(offer_of(acme, "test/echo", paris, oslo), offer_of(DIRTY.upstream, "test/echo", DIRTY)))
    assert chosen(found) == ("dirty", ("acme",))


def test_a_pin_is_never_moved() -> None:
    fails("clean")
    assert chosen(asked(model="clean/test/echo/FRPAR")) == ("clean", ())


def test_degraded_is_not_down() -> None:
    for failed in [True] * 4 + [False] * 6:
        health.note("clean", failed=failed)
    health.flush()
    health.look()
    assert chosen(asked()) == ("clean", ())


def test_the_published_status_counts_staffs_word_included(monkeypatch: pytest.MonkeyPatch) -> None:
    well, unwell = at_grams("said-well", 1, status_override="healthy"), at_grams("said-down", 2, status_override="down")
    fails("said-well")
    assert chosen(asked(served_by(well, DIRTY))) == ("said-well", ())
    assert chosen(asked(served_by(unwell, DIRTY))) == ("dirty", ("said-down",))
    at(NOON + 31 * SECONDS, monkeypatch)
    health.look()
    assert chosen(asked(served_by(unwell, DIRTY))) == ("dirty", ("said-down",))  # no probe would change that status


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    fails("clean")
    monkeypatch.setattr(settings, "GATEWAY_AUTO_SKIP_DOWN", False)
    assert chosen(asked()) == ("clean", ())


def test_a_probe_is_sent_after_30_seconds_and_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fails("clean")
    probed = []
    for second in range(100):
        at(NOON + second * SECONDS, monkeypatch)
        health.look()
        found = asked()
        if found.route.upstream.slug == "clean":
            assert (found.skipped, [one.upstream.slug for one in found.others]) == ((), ["middle", "dirty"])
            probed.append(second)
        else:
            assert chosen(found) == ("middle", ("clean",))
        assert chosen(asked()) == ("middle", ("clean",))
    assert probed == [30, 60, 90]


def test_only_one_worker_sends_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    fails("clean")
    asked()
    at(NOON + 30 * SECONDS, monkeypatch)
    health.look()
    with monkeypatch.context() as patch:
        another_worker(patch, sees="clean", since=NOON)
        health.look()
        assert chosen(asked()) == ("middle", ("clean",))
    assert chosen(asked()) == ("clean", ())


def test_a_probe_that_is_not_sent_lapses(monkeypatch: pytest.MonkeyPatch) -> None:
    fails("clean")
    asked()
    at(NOON + 30 * SECONDS, monkeypatch)
    health.look()
    at(NOON + 60 * SECONDS, monkeypatch)
    with monkeypatch.context() as patch:
        another_worker(patch, sees="clean", since=NOON)
        health.look()
        assert chosen(asked()) == ("clean", ())
    assert chosen(asked()) == ("middle", ("clean",))


def test_a_provider_without_requests_is_not_probed(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    fails("clean")
    at(NOON + 40 * SECONDS, monkeypatch)
    with django_assert_num_queries(1):
        health.look()
    assert chosen(asked()) == ("middle", ("clean",))


def test_a_count_of_tokens_is_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    fails("clean")
    asked()
    at(NOON + 30 * SECONDS, monkeypatch)
    health.look()
    assert chosen(asked(may_probe=False)) == ("middle", ("clean",))
    assert chosen(asked()) == ("clean", ())


def test_a_request_probes_no_provider_that_it_would_not_prefer(monkeypatch: pytest.MonkeyPatch) -> None:
    fails("dirty")
    assert chosen(asked()) == ("clean", ("dirty",))
    at(NOON + 30 * SECONDS, monkeypatch)
    health.look()
    assert chosen(asked()) == ("clean", ("dirty",))
    equal = at_grams("equal", 800)
    found = asked(served_by(equal, DIRTY))  # another model, for which it is as good as any
    assert (chosen(found), found.reason) == (("dirty", ()), "round_robin")


def test_who_is_back_by_its_probes_is_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fails("clean")
    for minute in range(1, 6):
        at(NOON + timedelta(minutes=minute), monkeypatch)
        health.look()
        assert chosen(asked(may_probe=False)) == (("middle", ("clean",)) if minute < 5 else ("clean", ()))
        health.note("clean", failed=False)
        health.flush()


def test_who_goes_on_failing_its_probes_stays_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    fails("clean")
    for probe in range(1, 40):
        at(NOON + probe * 30 * SECONDS, monkeypatch)
        health.look()
        assert chosen(asked()) == ("middle", ("clean",))
        health.look()
        assert chosen(asked()) == ("clean", ())
        health.note("clean", failed=True)
        health.flush()


def test_the_beat_looks() -> None:
    assert health.look in [hook.work for hook in worker_hooks.beat if isinstance(hook, Periodic)]
