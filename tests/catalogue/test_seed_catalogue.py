"""Seeding writes the catalogue from correct files."""

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from catalogue import changes, loader
from catalogue.loader import Plan
from catalogue.models import EnergyEstimate, ExchangeRate, GridIntensity, Model, Place, Provider, Region
from tests.seeding import MODEL, PROVIDER, Entry, Seed

FILE = """
exchange_rates: {as_of: 2026-10-30, base: EUR, rates: {USD: 1.0850}}
places: {FRPAR: {name: Paris, country: FR, eu: true, eea: true, notes: capital}, source: UNECE}
grid: {FR: 44, WORLD: 473, as_of: 2024-12-31}
energy: {meta/llama-3.3-70b-instruct: 0.00066}
providers:
  - slug: acme
    name: Acme Inference
    country: FR
    eu_native: true
    us_legal_reach: false
    dialect: openai
    base_url: https://{resource}.acme.example/v1/
    credential_env: ACME_API_KEY
    status: degraded
    auth: {header: api-key, scheme: ""}
    extra_headers: {x-version: "2026-01-01"}
    extra_env: {resource: ACME_RESOURCE}
    stream_options: false
    developer_role: true
    reasoning_content: false
    refused_parameters: [seed, logit_bias, seed]
    total_includes_reasoning: true
    total_includes_audio_prompts: true
    pue: 1.15
    retention: {days: 30, source: its privacy notice, as_of: 2026-11-29}
    storage: {countries: [FR, DE, FR], source: its contract, as_of: 2026-11-28}
    transfer: {basis: adequacy, source: its annex, as_of: 2026-11-27}
    confidential: {kind: tee, source: its white paper, as_of: 2026-11-26}
    source: https://acme.example
models:
  - provider: acme
    id: meta/llama-3.3-70b-instruct
    name: Llama 3.3 70B Instruct
    upstream_model: llama-3.3-70b
    modality: chat
    context_length: 131072
    max_output_tokens: 8192
    capabilities: {streaming: true, function_calling: true, image_input: false}
    max_tokens_field: max_completion_tokens
    thinking: adaptive
    aggregate: false
    state: unavailable
    unavailable_reason: Moving house.
    energy_per_token_wh: 0.00021
    energy_per_prompt_token_wh: 0.00002
    retires_on: 2027-01-31
    retention: {days: none, source: its model card, as_of: 2026-11-25}
    created: 2025-01-01
    owned_by: meta
    pricing: {currency: EUR, prompt_per_1m_tokens: 0.60, completion_per_1m_tokens: 0.60}
    regions:
      - locode: FRPAR
        default: true
        upstream_model: null
        base_url: null
        upstream_region: fr-par
        pricing:
          currency: EUR
          prompt_per_1m_tokens: 0.55
          completion_per_1m_tokens: 0.70
          cache_read_per_1m_tokens: 0.05
          tiers:
            - {above_prompt_tokens: 100000, prompt_per_1m_tokens: 0.0000000001, completion_per_1m_tokens: 1e2}
            - above_prompt_tokens: 200000
              prompt_per_1m_tokens: 2
              completion_per_1m_tokens: "3.50"
              cache_write_1h_per_1m_tokens: 4
              batch_prompt_per_1m_tokens: 1
              source: https://acme.example
        grid_carbon_intensity_gco2_per_kwh: 56
        daily_token_quota: 1000
        state: disabled
"""


def test_every_key_of_a_file_is_stored(seed: Seed) -> None:
    seed(FILE)
    stored = Region.objects.select_related("model__provider").values().get()
    assert stored | {"id": 0, "model_id": 0} == {
        "id": 0,
        "model_id": 0,
        "locode": "FRPAR",
        "is_default": True,
        "state": "disabled",
        "upstream_model": "",
        "base_url": "",
        "upstream_region": "fr-par",
        "currency": "EUR",
        "prompt_per_1m_tokens": Decimal("0.55"),
        "completion_per_1m_tokens": Decimal("0.70"),
        "cache_read_per_1m_tokens": Decimal("0.05"),
        "cache_write_per_1m_tokens": None,
        "cache_write_1h_per_1m_tokens": None,
        "batch_prompt_per_1m_tokens": None,
        "batch_completion_per_1m_tokens": None,
        "price_tiers": [
            {
                "above_prompt_tokens": 100000,
                "prompt_per_1m_tokens": "0.0000000001",
                "completion_per_1m_tokens": "100.00",
            },
            {
                "above_prompt_tokens": 200000,
                "prompt_per_1m_tokens": "2.00",
                "completion_per_1m_tokens": "3.50",
                "cache_write_1h_per_1m_tokens": "4.00",
                "batch_prompt_per_1m_tokens": "1.00",
            },
        ],
        "energy": None,
        "grid_carbon_intensity_gco2_per_kwh": 56,
        "daily_token_quota": 1000,
    }


def test_every_field_of_a_model_is_stored(seed: Seed) -> None:
    seed(FILE)
    stored = Model.objects.values().get()
    assert timezone.now() - timedelta(minutes=1) < stored["first_offered_at"] <= timezone.now()
    assert stored | {"id": 0, "provider_id": 0} == {
        "id": 0,
        "provider_id": 0,
        "canonical_id": "meta/llama-3.3-70b-instruct",
        "name": "Llama 3.3 70B Instruct",
        "upstream_model": "llama-3.3-70b",
        "modality": "chat",
        "context_length": 131072,
        "max_output_tokens": 8192,
        "streaming": True,
        "function_calling": True,
        "image_input": False,
        "max_tokens_field": "max_completion_tokens",
        "state": "unavailable",
        "unavailable_reason": "Moving house.",
        "retires_on": date(2027, 1, 31),
        "energy_per_token_wh": Decimal("0.00021"),
        "energy_per_prompt_token_wh": Decimal("0.00002"),
        "energy": None,
        "created": 1735689600,
        "thinking": "adaptive",
        "aggregate": False,
        "first_offered_at": stored["first_offered_at"],
        "owned_by": "meta",
        "retention_days": 0,
        "retention_source": "its model card",
        "retention_as_of": date(2026, 11, 25),
    }


def test_every_field_of_a_provider_is_stored(seed: Seed) -> None:
    seed(FILE)
    stored = Provider.objects.values().get()
    assert stored | {"id": 0} == {
        "id": 0,
        "slug": "acme",
        "name": "Acme Inference",
        "country": "FR",
        "eu_native": True,
        "us_legal_reach": False,
        "dialect": "openai",
        "base_url": "https://{resource}.acme.example/v1",
        "credential_env": "ACME_API_KEY",
        "auth_header": "api-key",
        "auth_scheme": "",
        "extra_headers": {"x-version": "2026-01-01"},
        "extra_env": {"resource": "ACME_RESOURCE"},
        "stream_options": False,
        "developer_role": True,
        "reasoning_content": False,
        "refused_parameters": ["seed", "logit_bias"],
        "total_includes_reasoning": True,
        "total_includes_audio_prompts": True,
        "pue": Decimal("1.15"),
        "retention_days": 30,
        "retention_source": "its privacy notice",
        "retention_as_of": date(2026, 11, 29),
        "storage_countries": ["DE", "FR"],
        "storage_source": "its contract",
        "storage_as_of": date(2026, 11, 28),
        "transfer_basis": "adequacy",
        "transfer_source": "its annex",
        "transfer_as_of": date(2026, 11, 27),
        "confidential_kind": "tee",
        "confidential_source": "its white paper",
        "confidential_as_of": date(2026, 11, 26),
        "status_override": "degraded",
        "disabled_reason": "",
    }


def test_the_plain_tables_are_stored(seed: Seed) -> None:
    seed(FILE)
    assert Place.objects.values_list().get() == ("FRPAR", "Paris", "FR", True, True, "")
    assert set(GridIntensity.objects.values_list()) == {
        ("FR", 44, "", date(2024, 12, 31)),
        ("WORLD", 473, "", date(2024, 12, 31)),
    }
    assert EnergyEstimate.objects.values_list().get() == ("meta/llama-3.3-70b-instruct", Decimal("0.00066"), None)
    assert ExchangeRate.objects.values_list().get() == ("USD", Decimal("1.085"), date(2026, 10, 30))


def test_energy_is_stored_by_kind_of_token(seed: Seed, llama: Entry) -> None:
    """A number stands for low, value and high; a missing kind gets the figures of the dearer one before it."""
    figures = {
        "wh": {"output": [0.0001, 0.0002, 0.0008], "prompt": 0.00002},
        "embodied_g": {"output": 0.00001, "cached": 0},
        "pue": 1.15,
        "method": "tokens-2026-11",
        "source": "a test",
        "as_of": "2026-10-30",
    }
    llama["models"][0]["regions"] = [{"locode": "global", "energy": {"kind": "provider", "wh": {"output": 0.0003}}}]
    llama["models"][0]["energy"] = figures
    seed({**llama, "energy": {"meta/llama": figures}})
    stored = Model.objects.get().energy
    assert stored == EnergyEstimate.objects.get().figures
    assert EnergyEstimate.objects.get().energy_per_token_wh == Decimal("0.0002")
    assert stored == {
        "wh": {
            "output": ["0.0001", "0.0002", "0.0008"],
            "prompt": ["0.00002"] * 3,
            "cached": ["0.00002"] * 3,
        },
        "embodied_g": {"output": ["0.00001"] * 3, "prompt": ["0.00001"] * 3, "cached": ["0"] * 3},
        "pue": "1.15",
        "kind": "modelled",
        "method": "tokens-2026-11",
        "source": "a test",
        "as_of": "2026-10-30",
    }
    region = Region.objects.get().energy
    assert region is not None
    assert (region["kind"], region["wh"]["cached"], region["embodied_g"]) == ("provider", ["0.0003"] * 3, None)


def test_what_an_entry_leaves_out_gets_its_default(seed: Seed, acme: Entry) -> None:
    seed({**acme, "models": [{"provider": "acme", "id": "meta/llama"}]})
    model, region = Model.objects.get(), Region.objects.get()
    assert (model.name, model.upstream_model, model.modality, model.state) == ("llama", "llama", "", "served")
    assert (model.context_length, model.streaming, model.energy_per_token_wh) == (None, None, None)
    assert (region.currency, region.prompt_per_1m_tokens, region.daily_token_quota) == ("", None, 0)
    assert (model.thinking, model.aggregate, model.provider.stream_options) == ("budget", True, True)
    provider = model.provider
    assert (provider.developer_role, provider.reasoning_content, provider.refused_parameters) == (False, True, [])


def test_prices_are_exact_decimals_in_yaml_and_in_json(seed: Seed, acme: Entry) -> None:
    model = "- {{provider: acme, id: {0}, pricing: {{currency: EUR, prompt_per_1m_tokens: {1}}}}}"
    seed(acme, "models:\n" + model.format("a/yaml", "0.1000000003") + "\n" + model.format("a/quoted", '"0.3"'))
    seed('{"models": [' + model.format("a/json", "0.1000000001")[2:].replace("acme", '"acme"') + "]}")
    seed({"models": [{**MODEL, "id": "a/float", "pricing": {"currency": "EUR", "prompt_per_1m_tokens": 0.7}}]})
    prices = dict(Region.objects.values_list("model__canonical_id", "prompt_per_1m_tokens"))
    assert prices == {
        "a/yaml": Decimal("0.1000000003"),
        "a/quoted": Decimal("0.3"),
        "a/json": Decimal("0.1000000001"),
        "a/float": Decimal("0.7"),
    }


def test_yaml_is_read_as_1_2(seed: Seed) -> None:
    seed("places: {NOOSL: {name: Oslo, country: NO, eu: false, eea: true}}\ngrid: {NO: 010, SE: 0o17, DK: 0x1F}")
    assert Place.objects.get().country == "NO"
    assert dict(GridIntensity.objects.values_list("country", "gco2_per_kwh")) == {"NO": 10, "SE": 15, "DK": 31}


def test_a_model_may_name_a_provider_of_another_file_or_of_the_database(seed: Seed, acme: Entry) -> None:
    seed({"models": [MODEL]}, acme)
    seed({"models": [{**MODEL, "id": "meta/other"}]})
    assert Model.objects.count() == 2


def test_a_model_without_regions_gets_one_global(seed: Seed, llama: Entry) -> None:
    seed(llama)
    region = Region.objects.get()
    assert (region.locode, region.is_default) == ("global", True)
    assert region.prompt_per_1m_tokens == Decimal("0.6")


@pytest.mark.parametrize(
    ("regions", "default"),
    [
        ([{"locode": "DEFRA"}, {"locode": "FRPAR", "default": True}], "FRPAR"),
        ([{"locode": "DEFRA"}, {"locode": "global"}], "global"),
        ([{"locode": "FRPAR"}, {"locode": "DEFRA"}], "FRPAR"),
    ],
    ids=["the marked one", "global", "the first"],
)
def test_one_region_is_the_default(seed: Seed, llama: Entry, regions: list[Entry], default: str) -> None:
    llama["models"][0]["regions"] = regions
    seed(llama)
    assert Region.objects.get(is_default=True).locode == default


def test_the_default_can_move_from_one_region_to_another(seed: Seed, llama: Entry) -> None:
    llama["models"][0]["regions"] = [{"locode": "FRPAR", "default": True}, {"locode": "DEFRA"}]
    seed(llama)
    llama["models"][0]["regions"] = [{"locode": "FRPAR"}, {"locode": "DEFRA", "default": True}, {"locode": "NLAMS"}]
    seed(llama)
    assert Region.objects.get(is_default=True).locode == "DEFRA"


def test_a_regions_own_pricing_replaces_the_models_whole(seed: Seed, llama: Entry) -> None:
    own = {"currency": "USD", "prompt_per_1m_tokens": 2}
    llama["models"][0]["regions"] = [{"locode": "FRPAR", "pricing": own}, {"locode": "DEFRA"}]
    seed(llama)
    prices = Region.objects.values_list("locode", "currency", "prompt_per_1m_tokens", "completion_per_1m_tokens")
    assert set(prices) == {("FRPAR", "USD", Decimal(2), None), ("DEFRA", "EUR", Decimal("0.6"), Decimal("1.2"))}


def test_a_shipped_place_that_a_region_names_is_stored(seed: Seed, llama: Entry) -> None:
    llama["models"][0]["regions"] = [{"locode": "FRPAR"}]
    seed(llama)
    assert Place.objects.values_list("code", "country", "eu").get() == ("FRPAR", "FR", True)


def test_without_a_path_it_seeds_what_ships(seed: Seed) -> None:
    seed()
    assert Place.objects.get(code="NOOSL").eea
    assert GridIntensity.objects.filter(country="WORLD").exists()
    assert ExchangeRate.objects.get(currency="USD").units_per_eur > 1


def test_it_prints_a_line_for_each_table_and_a_total(seed: Seed) -> None:
    assert seed(FILE).splitlines() == [
        "providers: 1 created, 0 updated, 0 unchanged, 0 removed",
        "models: 1 created, 0 updated, 0 unchanged, 0 removed",
        "regions: 1 created, 0 updated, 0 unchanged, 0 removed",
        "places: 1 created, 0 updated, 0 unchanged, 0 removed",
        "grid: 2 created, 0 updated, 0 unchanged, 0 removed",
        "energy: 1 created, 0 updated, 0 unchanged, 0 removed",
        "exchange_rates: 1 created, 0 updated, 0 unchanged, 0 removed",
        "created 8, updated 0, unchanged 0, removed 0",
    ]


def test_a_second_run_changes_nothing_and_leaves_the_version_alone(seed: Seed) -> None:
    seed(FILE)
    before = changes.version()
    assert seed(FILE).splitlines()[-1] == "created 0, updated 0, unchanged 8, removed 0"
    assert changes.version() == before


def test_any_change_moves_the_version_once(seed: Seed, llama: Entry) -> None:
    llama["models"][0]["regions"] = [{"locode": "FRPAR"}, {"locode": "DEFRA"}, {"locode": "NLAMS"}]
    seed(llama)
    before = changes.version()
    llama["models"][0] |= {"name": "New", "regions": [{"locode": "FRPAR"}]}
    output = seed(llama)
    assert "regions: 0 created, 0 updated, 1 unchanged, 2 removed" in output
    assert changes.version() == before + 1


def test_rows_keep_their_identity(seed: Seed, llama: Entry) -> None:
    seed(llama)
    before = (Provider.objects.get().pk, Model.objects.get().pk, Region.objects.get().pk)
    llama["providers"][0]["name"], llama["models"][0]["name"] = "Other", "Other"
    llama["models"][0]["pricing"]["prompt_per_1m_tokens"] = 0.7
    assert seed(llama).splitlines()[-1] == "created 0, updated 3, unchanged 0, removed 0"
    assert (Provider.objects.get().pk, Model.objects.get().pk, Region.objects.get().pk) == before


def test_the_file_wins_over_what_staff_edited(seed: Seed, llama: Entry) -> None:
    seed(llama)
    Model.objects.update(state="disabled", context_length=5)
    seed(llama)
    assert Model.objects.values_list("state", "context_length").get() == ("served", None)


def test_a_retention_of_zero_days_is_stored_as_zero_and_an_unstated_one_as_null(seed: Seed, llama: Entry) -> None:
    def stored() -> tuple[int | None, str, date | None]:
        return Provider.objects.values_list("retention_days", "retention_source", "retention_as_of").get()

    llama["providers"][0]["retention"] = {"days": 0, "source": "https://acme.example/privacy", "as_of": "2026-11-29"}
    seed(llama)
    assert stored() == (0, "https://acme.example/privacy", date(2026, 11, 29))
    llama["providers"][0]["retention"] = None
    seed(llama)
    assert stored() == (None, "", None)
    for without_source in ({"days": 1}, 1):
        llama["providers"][0]["retention"] = without_source
        seed(llama)
        assert stored() == (1, "", None)
    for none in ("none", {"days": "none"}, 0):
        llama["providers"][0]["retention"] = none
        seed(llama)
        assert stored() == (0, "", None)


@pytest.mark.parametrize(
    ("fact", "key", "value", "unknown"),
    [
        ("storage", "countries", ["FR", "DE"], None),
        ("transfer", "basis", "none", ""),
        ("confidential", "kind", "e2e", ""),
    ],
)
def test_a_fact_is_a_table_or_its_value_alone(
    seed: Seed, llama: Entry, fact: str, key: str, value: Any, unknown: Any
) -> None:
    def stored() -> tuple[Any, ...]:
        return Provider.objects.values_list(f"{fact}_{key}", f"{fact}_source", f"{fact}_as_of").get()

    sorted_value = sorted(value) if isinstance(value, list) else value
    stated = {key: value, "source": "https://acme.example/dpa", "as_of": "2026-11-29"}
    for written, wanted in (
        (stated, (sorted_value, "https://acme.example/dpa", date(2026, 11, 29))),
        (value, (sorted_value, "", None)),
        ({key: value}, (sorted_value, "", None)),
        (None, (unknown, "", None)),
    ):
        llama["providers"][0][fact] = written
        seed(llama)
        assert stored() == wanted


def test_entries_of_no_file_stay(seed: Seed, llama: Entry) -> None:
    seed(llama)
    seed({"providers": [{**PROVIDER, "slug": "other"}]})
    assert Model.objects.count() == 1
    assert Provider.objects.count() == 2


def test_prune_removes_providers_and_models_of_no_file(seed: Seed, llama: Entry) -> None:
    other = {"providers": [{**PROVIDER, "slug": "other"}], "models": [{**MODEL, "provider": "other"}]}
    seed(llama, other, "grid: {FR: 44}")
    before = changes.version()
    output = seed(llama, prune=True)
    assert output.splitlines()[-1] == "created 0, updated 0, unchanged 3, removed 3"
    assert list(Provider.objects.values_list("slug", flat=True)) == ["acme"]
    assert GridIntensity.objects.exists(), "facts were pruned"
    assert changes.version() == before + 1


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(seed: Seed, llama: Entry) -> None:
    seed(llama)
    before = changes.version()
    llama["models"][0]["pricing"]["prompt_per_1m_tokens"] = 0.7
    llama["models"].append({**MODEL, "id": "meta/new"})
    lines = seed(llama, dry_run=True).splitlines()
    assert lines[:4] == [
        "dry run: nothing is written",
        "would create models acme/meta/new",
        "would update regions acme/meta/llama/global (prompt_per_1m_tokens: 0.6 -> 0.7)",
        "would create regions acme/meta/new/global",
    ]
    assert lines[-1] == "created 2, updated 1, unchanged 2, removed 0"
    assert (Model.objects.count(), changes.version()) == (1, before)


def test_a_change_between_planning_and_writing_is_planned_for_again(
    seed: Seed, llama: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(llama)
    edits = ["Edited by staff"]

    def plan_while_staff_edits(*args: Any, **options: Any) -> Plan:
        plan = Plan(*args, **options)
        if edits:
            provider = Provider.objects.get()
            provider.name = edits.pop()
            provider.save()
        return plan

    monkeypatch.setattr(loader, "Plan", plan_while_staff_edits)
    llama["models"][0]["name"] = "New"
    assert "providers: 0 created, 1 updated" in seed(llama)
    assert (Provider.objects.get().name, Model.objects.get().name) == ("Acme", "New")


def test_a_locked_database_is_tried_again(seed: Seed, llama: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    def locked_twice(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("INSERT INTO"):
            attempts.append(sql)
            if len(attempts) <= 2:
                raise OperationalError("database is locked")
        return execute(sql, *rest)

    monkeypatch.setattr(loader, "_PAUSES", (0.0, 0.0))
    with connection.execute_wrapper(locked_twice):
        seed(llama)
    assert Model.objects.count() == 1


def test_several_files_may_state_the_same_fact(seed: Seed) -> None:
    seed("grid: {FR: 44}", "grid: {FR: 44, DE: 344}")
    assert GridIntensity.objects.count() == 2


def test_it_can_be_called_in_process(db: None, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("grid: {FR: 44}")
    plan = loader.seed([path])
    assert [table.name for table in plan.tables if table.counts.created] == ["grid"]
    assert plan.total.changed == 1
    assert all(shipped.exists() for shipped in loader.SHIPPED)
