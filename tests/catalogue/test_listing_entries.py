"""Clients read every entry of two whole catalogues (docs/api.md#models)."""

import itertools
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from django.db import transaction
from django.http import HttpResponse
from django.test import Client

from catalogue import loader, models
from catalogue.routing import snapshot
from tests import described
from tests.catalogue import catalogue_for
from tests.factories import forget_snapshot, new_account, new_key
from tests.listing import NOWHERE, Json, Read, entries
from tests.seeding import seed_one

SEGMENT = "[a-z0-9][a-z0-9._-]*"
MODEL_ID = re.compile(f"{SEGMENT}/{SEGMENT}/{SEGMENT}")
LOCODE = re.compile("global|[A-Z]{2}[A-Z0-9]{3}")
GRID_KINDS = ("measured", "forecast", "annual", "stated")

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", params=["of the tests", "that ships"])
def served(
    request: pytest.FixtureRequest, module_rows: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Read]:
    """Reads a whole catalogue, with every provider's credential."""
    with transaction.atomic(), pytest.MonkeyPatch.context() as patch:
        if request.param == "that ships":
            loader.seed()
        else:
            seed_one(catalogue_for(NOWHERE), tmp_path_factory.mktemp("listed"))
        for row in models.Provider.objects.all():
            for variable in (row.credential_env, *row.extra_env.values()):
                if variable:
                    patch.setenv(variable, "filled")
        token = new_key(new_account())[1]
        forget_snapshot()
        snapshot.refresh()

        def get(path: str, **headers: str) -> HttpResponse:
            response: HttpResponse = Client().get(path, headers={"Authorization": f"Bearer {token}", **headers})  # type: ignore[assignment]
            return response

        yield get
        forget_snapshot()
        transaction.set_rollback(True)


def test_the_list_is_as_the_spec_says(served: Read) -> None:
    response = served("/v1/models")
    described.conforms(response.json(), "ModelList")  # type: ignore[attr-defined]
    assert response.headers["Content-Type"] == "application/json"
    listed = entries(served)
    assert len(listed) > 50
    assert list(listed) == sorted(listed, key=lambda model_id: (model_id.startswith("auto/"), model_id))


def test_each_entry_is_found_by_its_id_with_its_slashes_encoded_or_not(served: Read) -> None:
    for number, (model_id, entry) in enumerate(entries(served).items()):
        own, other = ("auto_routing", "regions") if model_id.startswith("auto/") else ("regions", "auto_routing")
        assert MODEL_ID.fullmatch(model_id)
        assert own in entry
        assert other not in entry
        assert all(entry[name] for name in ("owned_by", "name"))
        path = quote(model_id, safe="") if number % 2 else model_id
        assert served(f"/v1/models/{path}").json() == entry  # type: ignore[attr-defined]


def test_each_region_is_found_by_its_own_id_alone_in_any_case(served: Read) -> None:
    number = itertools.count()
    for model_id, entry in entries(served).items():
        for one in entry.get("regions", ()):
            label = one["locode"].swapcase() if next(number) % 2 else one["locode"]
            found = served(f"/v1/models/{model_id}/{label}").json()  # type: ignore[attr-defined]
            assert found == entry | {"regions": [one]}
            assert one["id"] == f"{model_id}/{one['locode']}"
            assert LOCODE.fullmatch(one["locode"])


def test_each_region_has_its_own_label_and_global_comes_first(served: Read) -> None:
    for regions in (entry["regions"] for entry in entries(served).values() if "regions" in entry):
        assert "global" not in [one["locode"] for one in regions[1:]]
        for one in regions:
            label = "GLOBAL-AVERAGE" if one["locode"] == "global" else one["locode"]
            assert set(one.get("carbon_metrics", {label})) == {label}
            grid = one.get("carbon_metrics", {}).get(label, {})
            assert grid.get("grid_kind", "annual") in GRID_KINDS
            assert grid.get("grid_source") != ""


def test_candidates_are_regions_that_are_listed_and_ranges_hold_them(served: Read) -> None:
    listed = entries(served)
    regions = {one["id"]: one for entry in listed.values() for one in entry.get("regions", ())}
    envelopes = [entry["auto_routing"] for entry in listed.values() if "auto_routing" in entry]
    assert envelopes
    for envelope in envelopes:
        candidates = [regions[route_id] for route_id in envelope["candidates"]]
        assert all("pricing" in candidate for candidate in candidates)
        if "carbon_range" in envelope:
            seen = [figures(one)["grid_carbon_intensity_gco2_per_kwh"] for one in candidates]
            stated = envelope["carbon_range"]["grid_carbon_intensity_gco2_per_kwh"]
            assert (stated["min"], stated["max"]) == (min(seen), max(seen))
        if "pricing_range" in envelope:
            stated = envelope["pricing_range"]["prompt_per_1m_tokens"]
            in_eur = [one["pricing"] for one in candidates if one["pricing"]["currency"] == "EUR"]
            assert all(stated["min"] <= pricing["prompt_per_1m_tokens"] <= stated["max"] for pricing in in_eur)


def figures(listed_region: Json) -> Json:
    (metrics,) = listed_region["carbon_metrics"].values()
    return dict(metrics)


@pytest.mark.parametrize("query", ["", *(f"?jurisdiction={name}" for name in ("cloud-act-free", "eu-hosted"))])
def test_the_providers_are_as_the_spec_says(served: Read, query: str) -> None:
    listed = served(f"/v1/providers{query}").json()  # type: ignore[attr-defined]
    described.conforms(listed, "ProviderList")
    assert all(re.fullmatch(SEGMENT, found["name"]) for found in listed["data"])
    explicit = [entry for entry in entries(served, query).values() if "regions" in entry]
    for found in listed["data"]:
        offered = [entry for entry in explicit if entry["provider"] == found["name"]]
        assert found["model_count"] == len(offered)
        assert set(found["regions"]) == {one["locode"] for entry in offered for one in entry["regions"]}
        grids = {
            label: {name: figure for name, figure in metrics.items() if name.startswith("grid_")}
            for entry in offered
            for one in entry["regions"]
            for label, metrics in one.get("carbon_metrics", {}).items()
        }
        assert found.get("carbon_metrics", {}) == {label: grid for label, grid in grids.items() if grid}
        assert found["regions"].index("global") == 0 if "global" in found["regions"] else True
    assert {entry["provider"] for entry in explicit} <= {found["name"] for found in listed["data"]}
