"""Seeding refuses faulty files: each fault is a line with file, entry, field and reason, and nothing is written."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from catalogue import changes
from catalogue.loader.fields import OWN_PREFIXES, OWN_VARIABLES
from catalogue.models import Model, Place, Provider
from tests.seeding import MODEL, PROVIDER, Entry, Refused, Seed

SETTINGS = Path(__file__).resolve().parents[2] / "gateway" / "settings.py"


def test_a_fault_names_file_entry_field_and_reason(refused: Refused, llama: Entry) -> None:
    pricing = {"currency": "EUR", "prompt_per_1m_tokens": -1}
    llama["models"] += [{**MODEL, "id": "meta/other", "regions": [{"locode": "FRPAR", "pricing": pricing}]}]
    assert refused(llama) == [
        "file0.json: models[1] acme/meta/other (region FRPAR): pricing.prompt_per_1m_tokens: must not be negative"
    ]


def test_one_fault_and_nothing_is_written(refused: Refused, llama: Entry) -> None:
    refused(llama, {"providers": [{**PROVIDER, "slug": "auto"}]}, "places: {FRPAR: {name: Paris}}")
    assert (Provider.objects.count(), Model.objects.count(), Place.objects.count()) == (0, 0, 0)
    assert changes.version() == 0


def test_all_faults_of_all_files_are_listed(refused: Refused) -> None:
    faulty = {**PROVIDER, "country": "France", "dialect": "klingon", "colour": "blue"}
    assert refused({"providers": [faulty]}, "grid: {FR: -1}") == [
        "file0.json: providers[0] acme: colour: is not a known key",
        "file0.json: providers[0] acme: country: must be a country code of two capital letters",
        "file0.json: providers[0] acme: dialect: must be one of openai, anthropic",
        "file1.yaml: grid FR: Ensure this value is greater than or equal to 0.",
    ]


def test_the_list_of_faults_ends_somewhere(refused: Refused) -> None:
    lines = refused({"models": [{"provider": "nobody", "id": f"a/{number}"} for number in range(50)]})
    assert len(lines) == 21
    assert lines[-1] == "… and 30 more"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "must be a table with providers, models, …: it is empty"),
        ("- providers", "must be a table with providers, models, …: it is not a table"),
        ("providers: [", "is not YAML: line 2, column 1: did not find expected node content"),
        ("a: 1\n---\nb: 2", "is not YAML: line 2, column 1"),
        ("grid: {FR: 1, FR: 1}", "is not YAML: line 1, column 15: the key 'FR' is there twice"),
        ("grid: {[1]: 1}", "grid (1,): its key: must be a string (quote it)"),
        ("grid: !!python/object:os.system {}", "is not YAML: line 1, column 7"),
        ("grid: {FR: " + "9" * 5000 + "}", "is not YAML: Exceeds the limit"),
        ("models: {}", "models: must be a list"),
        ("providers: acme", "providers: must be a list"),
        ("grid: [FR]", "grid: must be a table"),
        ("energies: {}", "energies: is not a known key"),
        ("places: {<<: {FR: 1}}", "places <<: its key: must be of the form"),
    ],
)
def test_a_file_that_is_no_catalogue(refused: Refused, content: str, reason: str) -> None:
    lines = refused(content)
    assert len(lines) == 1
    assert lines[0].startswith(f"file0.yaml: {reason}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "is not JSON: Expecting property name"),
        (b'{"grid": {"FR": 1, "FR": 1}}', "is not JSON: the key 'FR' is there twice"),
        (b'{"grid": {"FR": NaN}}', "is not JSON: NaN is not a JSON number"),
        (b'{"grid": "\xff"}', "is not JSON: 'utf-8' codec can't decode"),
    ],
)
def test_a_json_file_that_is_not_json_is_refused(refused: Refused, tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    assert refused(path)[0].startswith(f"bad.json: {reason}")


def test_a_file_that_is_not_there(refused: Refused, tmp_path: Path) -> None:
    assert refused(tmp_path / "none.yaml") == ["none.yaml: cannot be read: No such file or directory"]
    assert refused(tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("slug", "auto", "auto is reserved"),
        ("slug", "alias", "alias is reserved"),
        ("slug", "Acme", "must be lowercase"),
        ("slug", "a/b", "must be lowercase"),
        ("slug", 7, "must be a string (quote it)"),
        ("slug", None, "This field is required."),
        ("name", "two\nlines", "must be one line of printable text"),
        ("country", "fr", "must be a country code"),
        ("eu_native", "yes", "must be true or false"),
        ("us_legal_reach", 1, "must be true or false"),
        ("dialect", "gemini", "must be one of openai, anthropic"),
        ("base_url", None, "This field is required."),
        ("base_url", "ftp://acme.example", "must be an http:// or https:// URL with a host"),
        ("base_url", "https:///v1", "must be an http:// or https:// URL with a host"),
        ("base_url", "https://acme.example:port", "is not a valid URL"),
        ("base_url", "https://acme.example/a b", "is not a valid URL"),
        ("base_url", "https://acme.example/{", "is not a valid URL"),
        ("base_url", "https://acme.example/v1?key=sekret", "must have no query and no fragment"),
        ("base_url", "https://acme.example/#sekret", "must have no query and no fragment"),
        ("base_url", "https://me:sekret@acme.example", "must carry no credentials"),
        ("base_url", "https://{nobody}.example", "{nobody} has no entry in extra_env"),
        ("credential_env", "sk-sekret", "must be the name of an environment variable"),
        ("credential_env", "SECRET_KEY", "SECRET_KEY is a variable of the gateway itself"),
        ("credential_env", "GATEWAY_ANYTHING", "GATEWAY_ANYTHING is a variable of the gateway itself"),
        ("extra_env", {"resource": "DATABASE_URL"}, "DATABASE_URL is a variable of the gateway itself"),
        ("extra_env", {"upstream_region": "X"}, "has a key that is not a placeholder name"),
        ("extra_env", {"no-name": "X"}, "has a key that is not a placeholder name"),
        ("extra_headers", {"bad header": "x"}, "has a key that is not a header name"),
        ("extra_headers", {"x-a": "b\r\nx-c: d"}, "must be one line of printable text"),
        ("extra_headers", {"Authorization": "Bearer sekret"}, "must not set Authorization"),
        ("extra_headers", {"X-A": "1", "x-a": "2"}, "names a header twice"),
        ("auth", {"header": "x y"}, "must be a single HTTP token"),
        ("auth", {"header": "x", "value": "sekret"}, "is not a known key"),
        ("auth", "Bearer", "must be a table"),
        ("status", "fine", "must be one of healthy, degraded, down"),
        ("stream_options", "no", "must be true or false"),
        ("pue", 0.9, "must be 1 or more"),
        ("retention", {"days": -1}, "greater than or equal to 0"),
        ("retention", {"source": "hearsay"}, "days: This field is required"),
        ("retention", "soon", "must be a whole number of days, or none"),
        ("retention", {"days": True}, "must be a whole number of days, or none"),
        ("retention", {"days": 0, "until": "2027-01-01"}, "is not a known key"),
        ("storage", [], "must name a country"),
        ("storage", "FR", "must be a list of country codes"),
        ("storage", {"countries": ["FR", "EU"]}, "must be a country code of two capital letters, which EU is not"),
        ("storage", ["fr"], "must be a country code of two capital letters"),
        ("transfer", "dpf", "must be one of none, adequacy, scc"),
        ("transfer", {"basis": ["scc"]}, "must be one of none, adequacy, scc"),
        ("transfer", {"kind": "scc", "basis": "scc"}, "is not a known key"),
        ("confidential", True, "must be one of none, tee, e2e"),
        ("confidential", {"source": "https://acme.example"}, "kind: This field is required"),
        ("retention", {"days": 0, "as_of": "yesterday"}, "as_of: must be a date"),
        ("retention", {"days": 0, "source": "x" * 501}, "source: Ensure this field has no more than 500 characters"),
        ("developer_role", 1, "must be true or false"),
        ("refused_parameters", "seed", "Expected a list"),
        ("refused_parameters", ["logit-bias"], "must be the name of a request field"),
        ("refused_parameters", ["seed", "messages"], "must not have messages"),
        ("api_key", "sk-sekret", "is not a known key"),
    ],
)
def test_a_provider_that_is_refused(refused: Refused, field: str, value: Any, reason: str) -> None:
    lines = refused({"providers": [{**PROVIDER, field: value}]})
    assert len(lines) == 1
    assert re.match(rf"file0\.json: providers\[0\].*: {field}\S*: ", lines[0])
    assert reason in lines[0]
    assert "sekret" not in lines[0]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("id", "llama", "must be exactly {creator}/{model}"),
        ("id", "meta/llama/FRPAR", "must be exactly {creator}/{model}"),
        ("id", "Meta/Llama", "must be exactly {creator}/{model}"),
        ("provider", "nobody", "nobody is in no file and not in the database"),
        ("provider", None, "This field is required."),
        ("modality", "vision", "must be one of chat, completion, embedding, responses, realtime"),
        ("context_length", 0, "greater than or equal to 1"),
        ("context_length", "131072", "must be a whole number"),
        ("context_length", 1e5, "must be a whole number"),
        ("max_output_tokens", 2**31, "less than or equal to 2147483647"),
        ("capabilities", {"streaming": "yes"}, "must be true or false"),
        ("capabilities", {"vision": True}, "is not a known key"),
        ("max_tokens_field", "max_output_tokens", "must be one of max_tokens, max_completion_tokens"),
        ("thinking", "deep", "must be one of budget, adaptive"),
        ("state", "retired", "must be one of served, unavailable, disabled"),
        ("energy_per_token_wh", -1, "must not be negative"),
        ("energy_per_token_wh", 1e-16, "at most 15 fractional digits"),
        ("energy", 0.0002, "must be a table"),
        ("energy", {"wh": {}}, "This field is required."),
        ("energy", {"wh": {"output": [0.1, 0.2]}}, "must be a number or [low, value, high]"),
        ("energy", {"wh": {"output": [0.2, 0.1, 0.3]}}, "must ascend"),
        ("energy", {"wh": {"output": 0.1, "input": 0.1}}, "is not a known key"),
        ("energy", {"wh": {"output": -1}}, "must not be negative"),
        ("energy", {"wh": {"output": 0.1}, "kind": "measured"}, "must be one of modelled, provider"),
        ("retention", {"days": "unknown"}, "must be a whole number of days, or none"),
        ("storage", ["FR"], "is not a known key"),
        ("retires_on", "31.12.2026", "must be a date"),
        ("retires_on", "2026-02-30", "must be a date"),
        ("created", "yesterday", "must be Unix seconds or a date"),
        ("created", -1, "must be Unix seconds"),
        ("pricing", {"prompt_per_1m_tokens": 1}, "This field is required."),
        ("pricing", {"currency": "euro"}, "must be a currency code"),
        ("pricing", {"currency": "EUR", "prompt": 1}, "is not a known key"),
        ("regions", {"FRPAR": {}}, "Expected a list"),
        ("regions", [{"locode": "FRPAR", "default": True}, {"locode": "global"}], "cannot be the default"),
        ("regions", [{"locode": "FRPAR", "default": True}, {"locode": "DEFRA", "default": True}], "at most one"),
        ("regions", [{"locode": "FRPAR"}, {"locode": "FRPAR"}], "FRPAR is there twice"),
    ],
)
def test_a_model_that_is_refused(refused: Refused, acme: Entry, field: str, value: Any, reason: str) -> None:
    lines = refused({**acme, "models": [{**MODEL, field: value}]})
    assert len(lines) == 1
    assert re.match(rf"file0\.json: models\[0\].*: {field}\S*: ", lines[0])
    assert reason in lines[0]


def test_a_model_states_its_energy_once(refused: Refused, acme: Entry) -> None:
    twice = {**MODEL, "energy": {"wh": {"output": 0.1}}, "energy_per_token_wh": 0.1}
    (line,) = refused({**acme, "models": [twice]})
    assert line.endswith("energy_per_token_wh: contradicts energy: state one of them")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("locode", "Paris", "must be global or a UN/LOCODE"),
        ("locode", "XXXXX", "is in no `places` table"),
        ("state", "unavailable", "must be one of served, disabled"),
        ("base_url", "acme.example", "must be an http:// or https:// URL"),
        ("base_url", "https://{nobody}.example", "{nobody} has no entry in the provider's extra_env"),
        ("upstream_region", "a/b", "must be letters, digits"),
        ("grid_carbon_intensity_gco2_per_kwh", 1.5, "must be a whole number"),
        ("energy", 0.0002, "must be a table"),
        ("daily_token_quota", -1, "greater than or equal to 0"),
        ("unavailable_reason", "x", "is not a known key"),
    ],
)
def test_a_region_that_is_refused(refused: Refused, acme: Entry, field: str, value: Any, reason: str) -> None:
    region = {"locode": "FRPAR", field: value}
    lines = refused({**acme, "models": [{**MODEL, "regions": [region]}]})
    assert len(lines) == 1
    start = f"file0.json: models[0] acme/meta/llama (region {region['locode']}): {field}: "
    assert lines[0].startswith(start)
    assert reason in lines[0]


@pytest.mark.parametrize(
    ("price", "reason"),
    [
        ("-0.01", "must not be negative"),
        ("0.12345678901", "at most 10 fractional digits"),
        ("0.60000000000000000000000000000000001", "at most 10 fractional digits"),
        (".nan", "must be a number"),
        (".inf", "must be a number"),
        ("1e400", "must be at most 10,000,000"),
        ("10000000.1", "must be at most 10,000,000"),
        ("true", "must be a number"),
        ("free", "must be a number"),
        ("'1,5'", "must be a number"),
        ("[1]", "must be a number"),
    ],
)
def test_a_price_that_is_refused(refused: Refused, acme: Entry, price: str, reason: str) -> None:
    pricing = f"{{currency: EUR, batch_prompt_per_1m_tokens: {price}}}"
    lines = refused(acme, f"models: [{{provider: acme, id: meta/llama, pricing: {pricing}}}]")
    assert lines[0].startswith("file1.yaml: models[0] acme/meta/llama: pricing.batch_prompt_per_1m_tokens: ")
    assert reason in lines[0]


PAIR = "prompt_per_1m_tokens: 1, completion_per_1m_tokens: 2"


@pytest.mark.parametrize(
    ("base", "tiers", "field", "reason"),
    [
        (PAIR, "{above_prompt_tokens: 1}", "tiers", "Expected a list"),
        (PAIR, f"[{{{PAIR}}}]", "tiers[0].above_prompt_tokens", "This field is required."),
        (PAIR, f"[{{above_prompt_tokens: 0, {PAIR}}}]", "tiers[0].above_prompt_tokens", "greater than or equal to 1"),
        (PAIR, f"[{{above_prompt_tokens: 1.5, {PAIR}}}]", "tiers[0].above_prompt_tokens", "must be a whole number"),
        (
            PAIR,
            f"[{{above_prompt_tokens: 7, {PAIR}}}, {{above_prompt_tokens: 7, {PAIR}}}]",
            "tiers[1].above_prompt_tokens",
            "must be above the threshold of the previous tier, 7",
        ),
        (
            PAIR,
            "[{above_prompt_tokens: 7, prompt_per_1m_tokens: 1}]",
            "tiers[0].completion_per_1m_tokens",
            "must be stated in a tier, as next to the tiers",
        ),
        (
            PAIR,
            "[{above_prompt_tokens: 7, completion_per_1m_tokens: 1}]",
            "tiers[0].prompt_per_1m_tokens",
            "must be stated in a tier, as next to the tiers",
        ),
        (
            "completion_per_1m_tokens: 1",
            f"[{{above_prompt_tokens: 7, {PAIR}}}]",
            "tiers",
            "need a prompt_per_1m_tokens next to them",
        ),
        (
            PAIR,
            f"[{{above_prompt_tokens: 7, {PAIR}, cache_read_per_1m_tokens: -1}}]",
            "tiers[0].cache_read_per_1m_tokens",
            "must not be negative",
        ),
        (PAIR, f"[{{above_prompt_tokens: 7, {PAIR}, currency: EUR}}]", "tiers[0].currency", "is not a known key"),
    ],
)
def test_a_tier_that_is_refused(refused: Refused, acme: Entry, base: str, tiers: str, field: str, reason: str) -> None:
    pricing = f"{{currency: EUR, {base}, tiers: {tiers}}}"
    lines = refused(acme, f"models: [{{provider: acme, id: meta/llama, pricing: {pricing}}}]")
    assert len(lines) == 1
    assert lines[0].startswith(f"file1.yaml: models[0] acme/meta/llama: pricing.{field}: ")
    assert reason in lines[0]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("places: {Paris: {}}", "places Paris: its key: must be of the form"),
        ("places: {FRPAR: {name: Paris, country: FR, eu: true}}", "places FRPAR: eea: This field is required."),
        ("grid: {WORLD: 47.3}", "grid WORLD: must be a whole number"),
        ("grid: {EARTH: 473}", "grid EARTH: its key"),
        ("energy: {llama: 0.1}", "energy llama: its key"),
        ("energy: {meta/llama: x}", "energy meta/llama: must be a number"),
        ("energy: {meta/llama: {wh: {output: x}}}", "energy meta/llama: wh.output: must be a number"),
        ("exchange_rates: {rates: {USD: 0}}", "exchange_rates USD: must be above zero"),
        ("exchange_rates: {rates: {EUR: 1.1}}", "exchange_rates EUR: must be 1: the euro is the base"),
        ("exchange_rates: {base: USD, rates: {EUR: 1}}", "exchange_rates: base: must be one of EUR"),
        ("exchange_rates: {base: EUR}", "exchange_rates: rates: This field is required."),
    ],
)
def test_a_fact_that_is_refused(refused: Refused, content: str, line: str) -> None:
    assert refused(content)[0].startswith(f"file0.yaml: {line}")


def test_an_entry_that_is_there_twice(refused: Refused, llama: Entry) -> None:
    assert refused(llama, llama) == [
        "file1.json: providers[0] acme: is there already: file0.json: providers[0] acme",
        "file1.json: models[0] acme/meta/llama: is there already: file0.json: models[0] acme/meta/llama",
    ]


def test_facts_that_contradict_each_other(refused: Refused) -> None:
    assert refused("grid: {FR: 44}", "grid: {FR: 45}") == ["file1.yaml: grid FR: contradicts file0.yaml"]


def test_a_faulty_provider_is_not_also_missing(refused: Refused, llama: Entry) -> None:
    llama["providers"][0]["country"] = "France"
    assert len(refused(llama)) == 1


def test_a_model_cannot_lean_on_a_provider_that_is_about_to_be_pruned(
    seed: Seed, refused: Refused, acme: Entry
) -> None:
    seed(acme)
    assert refused({"models": [MODEL]}, prune=True)[0].endswith("or about to be pruned")


def test_a_region_must_fill_the_placeholder_of_the_base_url(refused: Refused, llama: Entry) -> None:
    llama["providers"][0]["base_url"] = "https://{upstream_region}.acme.example"
    llama["models"][0]["regions"] = [{"locode": "FRPAR", "upstream_region": "fr"}, {"locode": "DEFRA"}]
    reason = "upstream_region: is required: the base_url has it as a placeholder"
    assert refused(llama) == [f"file0.json: models[0] acme/meta/llama (region DEFRA): {reason}"]


def test_every_variable_of_the_settings_is_kept_from_providers() -> None:
    names = set(re.findall(r"\"([A-Z][A-Z0-9_]{3,})\"", SETTINGS.read_text()))
    read = set(re.findall(r"(?:env\.\w+|_positive|_at_least)\(\"(\w+)\"", SETTINGS.read_text()))
    assert {name for name in read if name not in OWN_VARIABLES and not name.startswith(OWN_PREFIXES)} == set()
    assert read <= names


def test_a_database_without_tables_is_one_clear_line(seed: Seed, acme: Entry) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE catalogue_provider RENAME TO elsewhere")
    with pytest.raises(CommandError, match=r"^the database refused, nothing was changed: .*catalogue_provider.*$"):
        seed(acme)


def test_help_needs_no_database() -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("seed_catalogue", "--help", stdout=io.StringIO())
    assert ended.value.code == 0


@pytest.mark.parametrize("field", ["total_includes_reasoning", "total_includes_audio_prompts"])
def test_a_dialect_without_totals_takes_no_field_about_them(refused: Refused, field: str) -> None:
    lines = refused({"providers": [{**PROVIDER, "dialect": "anthropic", field: True}]})
    assert [line.split(": ", 2)[2] for line in lines] == [
        f"{field}: must be absent: usage of the dialect anthropic has no total"
    ]
