"""A worker's copy of the catalogue is one version, replaced as a whole, and follows every change."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalogue import changes, models
from catalogue.footprint.energy import Range
from catalogue.loader import seed as seed_files
from catalogue.routing import snapshot
from gateway.errors import ServiceUnavailable
from tests.factories import forget_snapshot
from tests.seeding import Entry, Seed

pytestmark = pytest.mark.django_db
ECHO = ("acme", "meta/llama")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Keeps this test's catalogue from other tests, and theirs from this one."""
    forget_snapshot()
    yield
    forget_snapshot()


@pytest.fixture
def llama_served(seed: Seed, llama: Entry) -> models.Region:
    seed(llama)
    snapshot.refresh()
    return models.Region.objects.get()


def version_of(change: Callable[[], object]) -> int:
    """Returns by how many versions a change advances the catalogue."""
    before = changes.version()
    change()
    return changes.version() - before


def test_nothing_is_routed_before_it_is_loaded() -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        snapshot.current()
    assert (caught.value.status, caught.value.code, caught.value.param) == (503, "service_unavailable", "model")


def test_an_empty_catalogue_is_a_catalogue() -> None:
    snapshot.refresh()
    assert snapshot.current().offers == {}


def test_a_seeded_offer_is_routed(llama_served: models.Region) -> None:
    route = snapshot.current().offers[ECHO].routes["global"]
    assert (route.id, route.region_id) == ("acme/meta/llama/global", llama_served.pk)
    assert route.price is not None
    assert (route.price.prompt, route.price.completion) == (Decimal("0.6"), Decimal("1.2"))


def test_looking_again_costs_one_query_and_keeps_the_very_same_copy(llama_served: models.Region) -> None:
    before = snapshot.current()
    with CaptureQueriesContext(connection) as queries:
        snapshot.refresh()
    assert len(queries) == 1
    assert snapshot.current() is before


def test_seeding_the_same_again_moves_nothing(seed: Seed, llama: Entry, llama_served: models.Region) -> None:
    assert version_of(lambda: seed(llama)) == 0


def test_a_seeding_moves_the_version_once(seed: Seed, llama: Entry, llama_served: models.Region) -> None:
    llama["models"].append({**llama["models"][0], "id": "meta/other"})
    assert version_of(lambda: seed(llama)) == 1


def rename_in_bulk() -> None:
    models.Model.objects.update(name="New")
    changes.bump()


EDITS: dict[str, Callable[[], object]] = {
    "a save": lambda: models.Model.objects.get().save(),
    "a deletion": lambda: models.Region.objects.get().delete(),
    "a deletion of many": lambda: models.Provider.objects.all().delete(),
    "a new row": lambda: models.ExchangeRate.objects.create(currency="USD", units_per_eur=Decimal("1.25")),
    "a fact": lambda: models.GridIntensity.objects.create(country="WORLD", gco2_per_kwh=473),
    "an estimate": lambda: models.EnergyEstimate.objects.create(canonical_id="meta/llama", energy_per_token_wh=1),
    "a place": lambda: models.Place.objects.create(code="FRPAR", name="Paris", country="FR", eu=True, eea=True),
    "a bulk write that says so": rename_in_bulk,
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_every_edit_moves_the_version_and_is_followed(llama_served: models.Region, edit: Callable[[], object]) -> None:
    before = snapshot.current()
    assert version_of(edit) >= 1
    assert snapshot.current() is before
    snapshot.refresh()
    assert snapshot.current() is not before
    assert snapshot.current().version == changes.version()


def test_the_first_change_ever_creates_the_version() -> None:
    models.CatalogueVersion.objects.all().delete()
    assert version_of(changes.bump) == 1


def test_the_admin_s_edit_is_served_after_a_refresh(llama_served: models.Region, admin_client: Any) -> None:
    model = models.Model.objects.get()
    page = f"/admin/catalogue/model/{model.pk}/change/"
    form = admin_client.get(page).context["adminform"].form
    inlines = {
        name: value
        for formset in admin_client.get(page).context["inline_admin_formsets"]
        for one in (formset.formset.management_form, *formset.formset.forms)
        for name, value in _sent(one).items()
    }
    response = admin_client.post(page, {**_sent(form), **inlines, "state": "disabled"})
    assert response.status_code == 302, response.text
    snapshot.refresh()
    assert snapshot.current().offers[ECHO].state == "disabled"


def _sent(form: Any) -> dict[str, Any]:
    values = {bound.html_name: bound.value() for bound in form}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def test_a_model_without_a_region_is_not_offered_and_breaks_nothing(seed: Seed, llama: Entry) -> None:
    llama["models"].append({**llama["models"][0], "id": "meta/other"})
    seed(llama)
    models.Region.objects.get(model__canonical_id="meta/other").delete()
    snapshot.refresh()
    assert set(snapshot.current().offers) == {ECHO}


def test_facts_fill_what_an_offer_leaves_out(seed: Seed, llama: Entry) -> None:
    seed({**llama, "grid": {"FR": 44, "WORLD": 473}, "energy": {"meta/llama": 0.0003}})
    snapshot.refresh()
    energy = snapshot.current().offers[ECHO].routes["global"].energy
    assert (energy.per_token_wh, energy.intensity_gco2_per_kwh) == (Decimal("0.0003"), 473)


def test_figures_of_a_region_win_over_its_offers_and_those_over_the_canonical_models(seed: Seed, llama: Entry) -> None:
    def figures(wh: float) -> Entry:
        return {"wh": {"output": wh, "prompt": 0.00001}}

    offer = llama["models"][0]
    offer["regions"] = [{"locode": "FRPAR", "energy": figures(0.0003)}, {"locode": "DEFRA"}]
    for own, expected in (
        ({"energy": figures(0.0002)}, "0.0002"),
        ({"energy_per_token_wh": 0.0004}, "0.0004"),
        ({}, "0.0001"),
    ):
        seed({**llama, "models": [{**offer, **own}], "energy": {"meta/llama": figures(0.0001)}})
        snapshot.refresh()
        routes = snapshot.current().offers[ECHO].routes
        assert routes["FRPAR"].energy.per_token_wh == Decimal("0.0003")
        assert routes["DEFRA"].energy.per_token_wh == Decimal(expected)
        assert (routes["DEFRA"].energy.figures is None) == (expected == "0.0004")
        assert routes["FRPAR"].energy.per_prompt_token_wh == Decimal("0.00001")


def test_the_energy_of_a_model_is_scaled_to_the_pue_of_its_provider_and_what_is_stated_of_an_offer_is_not(
    seed: Seed, llama: Entry
) -> None:
    figures = {"wh": {"output": [0.0001, 0.0006, 0.0024], "prompt": 0.00012, "cached": 0}, "pue": 1.2}
    llama["providers"][0]["pue"] = 1.5
    llama["models"] += [{**llama["models"][0], "id": "meta/other", "energy": figures}]
    seed({**llama, "energy": {"meta/llama": figures}})
    snapshot.refresh()
    scaled, stated = (
        snapshot.current().offers["acme", model].routes["global"].energy.figures
        for model in ("meta/llama", "meta/other")
    )
    assert scaled is not None
    assert stated is not None
    assert scaled.wh.output == Range(Decimal("0.000125"), Decimal("0.00075"), Decimal("0.003"))
    assert (scaled.wh.prompt.value, scaled.wh.cached.value, scaled.pue) == (
        Decimal("0.00015"),
        Decimal(0),
        Decimal("1.5"),
    )
    assert (stated.wh.output.value, stated.pue) == (Decimal("0.0006"), Decimal("1.2"))


def test_the_default_region_is_the_marked_one_else_global_else_the_first(seed: Seed, llama: Entry) -> None:
    """The default comes first among the routes."""
    offer = llama["models"][0]
    for regions, default, others in (
        ([{"locode": "DEFRA"}, {"locode": "FRPAR", "default": True}], "FRPAR", ["DEFRA"]),
        ([{"locode": "FRPAR"}, {"locode": "global"}], "global", ["FRPAR"]),
        ([{"locode": "FRPAR"}, {"locode": "DEFRA"}], "FRPAR", ["DEFRA"]),
    ):
        models.Provider.objects.all().delete()
        offer["regions"] = regions
        seed(llama)
        snapshot.refresh()
        assert snapshot.current().offers[ECHO].default_locode == default
        assert list(snapshot.current().offers[ECHO].routes) == [default, *others]


@pytest.mark.parametrize(
    ("pricing", "modality", "billable"),
    [
        ({"prompt_per_1m_tokens": 1, "completion_per_1m_tokens": 2}, "chat", True),
        ({"prompt_per_1m_tokens": 0, "completion_per_1m_tokens": 0}, "chat", True),
        ({"prompt_per_1m_tokens": 1}, "chat", False),
        ({"completion_per_1m_tokens": 1}, "chat", False),
        ({"prompt_per_1m_tokens": 1}, "embedding", True),
        ({"completion_per_1m_tokens": 1}, "embedding", False),
        (None, "chat", False),
    ],
)
def test_a_route_has_a_price_if_it_can_be_billed(
    seed: Seed, llama: Entry, pricing: Entry | None, modality: str, billable: bool
) -> None:
    offer = llama["models"][0]
    offer["modality"] = modality
    del offer["pricing"]
    if pricing is not None:
        offer["pricing"] = {"currency": "EUR", **pricing}
    seed(llama)
    snapshot.refresh()
    assert (snapshot.current().offers[ECHO].routes["global"].price is not None) == billable


def test_a_provider_is_configured_by_the_environment(seed: Seed, llama: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    llama["providers"][0]["credential_env"] = "ACME_API_KEY"
    seed(llama)
    for value, configured in (("", False), ("acme-secret", True)):
        monkeypatch.setenv("ACME_API_KEY", value)
        forget_snapshot()
        snapshot.refresh()
        upstream = snapshot.current().upstreams["acme"]
        assert (upstream.configured, upstream.credential) == (configured, value or None)


@pytest.mark.django_db(transaction=True)
def test_a_snapshot_is_of_one_moment(acme: Entry, llama: Entry, seed: Seed) -> None:
    """The snapshot is read outside a test's transaction, as in a worker."""
    seed(llama)
    snapshot.refresh()
    assert snapshot.current().version == changes.version()
    assert set(snapshot.current().offers) == {ECHO}
    assert not connection.in_atomic_block


def test_the_catalogue_that_ships_can_be_routed() -> None:
    seed_files()
    snapshot.refresh()
    catalogue = snapshot.current()
    assert len(catalogue.offers) > 0
    assert all(offer.default_locode in offer.routes for offer in catalogue.offers.values())
