"""Requests report energy and carbon if the catalogue has figures by kind of token (docs/api.md#energy-and-carbon)."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chat import answer, stream
from tests.servers.customer import Customer
from tests.servers.process import ROOT

Json = dict[str, Any]

# These figures are for 2 words of output, 2 of prompt and 20 cached tokens, by `footprint` in tests/catalogue.py.
FOOTPRINT = {
    "energy_wh": 0.000444,
    "energy_wh_low": 0.00022,
    "energy_wh_high": 0.0018,
    "energy_source": "modelled",
    "energy_method": "tokens-2026-11",
    "energy_breakdown": {"output_wh": 0.0004, "prompt_wh": 0.00004, "cached_wh": 0.000004},
    "carbon_gco2e": 0.000019536,
    "embodied_gco2e": 0.0000222,
}
BESIDE = ("energy_wh_low", "energy_wh_high", "energy_source", "energy_method", "energy_breakdown", "embodied_gco2e")


def of_footprint(shown: Json) -> Json:
    return {name: shown.get(name) for name in FOOTPRINT}


def test_each_kind_of_token_has_its_energy_with_bounds(account: Customer) -> None:
    metadata = answer(account, "footprint")["gateway_metadata"]
    assert of_footprint(metadata) == FOOTPRINT
    assert "tokens-2026-11" in metadata["estimation_methodology"]
    assert "docs/energy.md" in metadata["estimation_methodology"]


def test_a_stream_says_the_same(account: Customer) -> None:
    assert of_footprint(stream(account, "footprint").chunks[-1]["gateway_metadata"]) == FOOTPRINT


def test_a_region_overrides_its_models_figures(account: Customer) -> None:
    metadata = answer(account, "sim/test/footprint/DEFRA")["gateway_metadata"]
    assert (metadata["energy_wh"], metadata["energy_source"]) == (0.00048, "provider")
    assert (metadata["energy_wh_low"], metadata["energy_wh_high"]) == (0.00048, 0.00048)
    assert "embodied_gco2e" not in metadata


def test_one_number_says_nothing_of_bounds(account: Customer) -> None:
    metadata = answer(account, "echo")["gateway_metadata"]
    assert metadata["energy_wh"] == 0.0008
    assert not set(BESIDE) - {"energy_source"} & set(metadata)
    assert metadata["energy_source"] == "modelled"


def test_the_record_keeps_what_the_answer_said(account: Customer) -> None:
    answered = answer(account, "footprint")
    (record,) = account.http.get("/v1/generations").json()["data"]
    assert of_footprint(record) == FOOTPRINT
    assert of_footprint(account.http.get(f"/v1/metrics/{answered['id']}").json()) == FOOTPRINT


@pytest.mark.parametrize("slug", ["energy", "impact"])
def test_energy_that_the_upstream_measured_is_believed(account: Customer, slug: str) -> None:
    """The upstream reports 36 joules (36,000 watt milliseconds): in the answer, on the last chunk, or in a comment."""
    whole = answer(account, slug, max_tokens=16)["gateway_metadata"]
    aggregated = answer(account, slug)["gateway_metadata"]
    streamed = stream(account, slug).chunks[-1]["gateway_metadata"]
    for metadata in (whole, aggregated, streamed):
        assert (metadata["energy_wh"], metadata["energy_source"]) == (0.01, "measured")
        assert metadata["carbon_gco2e"] == 0.00044
        assert "measured" in metadata["estimation_methodology"]
        assert "energy_wh_low" not in metadata
    (record, *_) = account.http.get("/v1/generations").json()["data"]
    assert (record["energy_wh"], record["energy_source"]) == (0.01, "measured")


def test_a_measurement_beyond_reason_is_not_believed(account: Customer) -> None:
    metadata = answer(account, "absurd-energy")["gateway_metadata"]
    assert (metadata["energy_wh"], metadata["energy_source"]) == (0.0008, "modelled")


def test_metrics_of_an_unknown_footprint_are_null(account: Customer) -> None:
    answered = answer(account, "unknown-energy")
    metrics = account.http.get(f"/v1/metrics/{answered['id']}").json()
    assert {metrics[name] for name in FOOTPRINT} == {None}


def test_each_line_of_a_statement_can_be_recomputed_without_the_gateway(account: Customer, tmp_path: Path) -> None:
    for slug in ("energy", "footprint", "sim/test/footprint/DEFRA", "echo", "cached", "unknown-energy", "global-only"):
        answer(account, slug)
    statement = tmp_path / "statement.csv"
    done = account.gateway.manage("export_usage", account.name, "--since", "2000-01-01", "--until", "2999-12-31")
    statement.write_text(done.stdout, newline="")
    assert recomputed(statement) == (0, "")
    statement.write_text(done.stdout.replace("0.000444", "0.000445"), newline="")
    code, output = recomputed(statement)
    assert code == 1
    assert "energy_wh is 0.000445 and comes out as 0.0004440000" in output


def recomputed(statement: Path) -> tuple[int, str]:
    """Runs the script without the gateway's packages; returns its exit status and output."""
    script = ROOT / "docs" / "recompute_footprint.py"
    done = subprocess.run([sys.executable, "-I", "-S", script, statement], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("slug", ["footprint", "echo"])
def test_energy_of_the_catalogue_is_that_of_an_output_token(account: Customer, slug: str) -> None:
    listed = account.http.get(f"/v1/models/sim/test/{slug}").json()
    assert listed["regions"][0]["carbon_metrics"]["FRPAR"]["energy_per_token_wh"] == 0.0002


def test_answers_records_and_metrics_say_what_the_grid_intensity_rests_on(account: Customer) -> None:
    basis = {"grid_kind": "annual", "grid_source": "A table", "grid_as_of": "2025-09-08"}
    answered = answer(account, "footprint")
    shown = [answered["gateway_metadata"], account.http.get(f"/v1/metrics/{answered['id']}").json()]
    shown += account.http.get("/v1/generations").json()["data"]
    assert [{name: one[name] for name in basis} for one in shown] == [basis] * 3
