"""What staff can and cannot do to the catalogue."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.sites import site
from django.forms.models import BaseInlineFormSet
from django.test import Client, RequestFactory
from django.urls import reverse

from catalogue import changes, models, snapshot
from catalogue.admin import RegionInline
from tests.seeding import Entry, Seed

ANY_REQUEST = RequestFactory().get("/")


@pytest.mark.parametrize("field", ["base_url", "credential_env", "extra_env", "extra_headers", "auth_header", "slug"])
def test_where_credentials_go_is_not_for_staff(field: str) -> None:
    assert field in site.get_model_admin(models.Provider).get_readonly_fields(ANY_REQUEST)


@pytest.mark.parametrize("field", ["base_url", "upstream_region", "locode", "is_default"])
def test_nor_is_where_a_route_leads(field: str) -> None:
    assert field in site.get_model_admin(models.Region).get_readonly_fields(ANY_REQUEST)
    assert field in RegionInline.readonly_fields


@pytest.mark.parametrize("table", [models.Provider, models.Model, models.Region])
def test_offers_come_and_go_by_seeding(table: type[models.Provider]) -> None:
    admin = site.get_model_admin(table)
    assert not admin.has_add_permission(ANY_REQUEST)
    assert not admin.has_delete_permission(ANY_REQUEST)


def test_staff_switch_a_model_off_and_workers_learn_of_it(seed: Seed, llama: Entry, admin_client: Client) -> None:
    seed(llama)
    model, region, before = models.Model.objects.get(), models.Region.objects.get(), changes.version()
    page = admin_client.get(reverse("admin:catalogue_model_change", args=[model.pk]))
    form = page.context["adminform"].form.initial | {
        f"{name}": value
        for formset in page.context["inline_admin_formsets"]
        for name, value in _inputs(formset.formset)
    }
    edited = {name: value for name, value in form.items() if value is not None} | {"state": "disabled"}
    answer = admin_client.post(reverse("admin:catalogue_model_change", args=[model.pk]), edited)
    assert answer.status_code == 302, answer.context["errors"]
    assert models.Model.objects.get().state == "disabled"
    assert models.Region.objects.get() == region
    assert changes.version() > before


@pytest.mark.parametrize("table", ["provider", "model", "region", "place", "gridintensity", "exchangerate"])
def test_every_list_and_form_opens(seed: Seed, llama: Entry, admin_client: Client, table: str) -> None:
    seed(llama, "{places: {FRPAR: {name: Paris, country: FR, eu: true, eea: true}}, grid: {FR: 44}}")
    seed("exchange_rates: {rates: {USD: 1.1}}")
    row = apps.get_model("catalogue", table)._default_manager.get()
    assert admin_client.get(reverse(f"admin:catalogue_{table}_changelist"), {"q": "a"}).status_code == 200
    assert admin_client.get(reverse(f"admin:catalogue_{table}_change", args=[row.pk])).status_code == 200


def _inputs(formset: "BaseInlineFormSet[Any, Any, Any]") -> Iterator[tuple[str, Any]]:
    """What a browser would send back for this formset."""
    for form in [formset.management_form, *formset.forms]:
        for name in form.fields:
            yield form.add_prefix(name), form[name].value()


def test_a_regions_own_base_url_is_filled_from_the_environment(
    seed: Seed, llama: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_RESOURCE", "ours")
    url = "https://{resource}-{upstream_region}.example"
    llama["providers"][0]["extra_env"] = {"resource": "ACME_RESOURCE"}
    llama["models"][0]["regions"] = [{"locode": "FRPAR", "upstream_region": "fr", "base_url": url}]
    seed(llama)
    snapshot.forget()
    snapshot.refresh()
    route = snapshot.current().offers["acme", "meta/llama"].routes["FRPAR"]
    snapshot.forget()
    assert route.base_url == "https://ours-fr.example"
