"""A public list of prices becomes a diff of catalogue files, which nobody's price changes by unread."""

import json
import zipfile
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from catalogue.loader import SHIPPED
from catalogue.loader.files import read as read_catalogue
from tools.price_sources import NAMES, is_same_limit

OURS = """\
# Two offers, and why.
as_of: 2026-09-29
models:
  - provider: openai
    id: openai/gpt-5.4
    upstream_model: gpt-5.4
    modality: chat
    context_length: 400000      # the older one
    max_tokens_field: max_completion_tokens
    pricing:
      currency: USD
      prompt_per_1m_tokens: 2.00   # was it ever less?
      completion_per_1m_tokens: 15.00
      tiers:
        - above_prompt_tokens: 272000
          prompt_per_1m_tokens: 4.00
          completion_per_1m_tokens: 22.50
      as_of: 2026-07-24
      source: by hand
    regions:
      - {locode: global}

  - provider: scaleway
    id: zai/glm-5.2
    upstream_model: glm-5.2
    modality: chat
    pricing: {currency: EUR, prompt_per_1m_tokens: 1.80, completion_per_1m_tokens: 5.50}
    regions: [{locode: FRPAR}]
"""

# Excerpts, in the projects' own formats.
MODELS_DEV = {
    "openai": {
        "id": "openai",
        "name": "OpenAI",
        "models": {
            "gpt-5.4": {
                "id": "gpt-5.4",
                "name": "GPT-5.4",
                "status": "deprecated",
                "limit": {"context": 1050000, "input": 272000, "output": 128000},
                "cost": {
                    "input": 2.5,
                    "output": 15,
                    "cache_read": 0.25,
                    "tiers": [{"input": 5, "output": 22.5, "tier": {"type": "context", "size": 272000}}],
                    "context_over_200k": {"input": 5, "output": 22.5},
                },
            }
        },
    },
    "scaleway": {
        "id": "scaleway",
        "models": {"glm-5.2": {"cost": {"input": 1.9, "output": 5.5}, "limit": {"context": 256000, "output": 16384}}},
    },
}
LITELLM = {
    "sample_spec": {"input_cost_per_token": 0.0, "max_output_tokens": "max output tokens, if the provider says"},
    "gpt-5.4": {
        "litellm_provider": "openai",
        "mode": "chat",
        "input_cost_per_token": 2.5e-06,
        "output_cost_per_token": 1.5e-05,
        "cache_read_input_token_cost": 2.5e-07,
        "input_cost_per_token_batches": 1.25e-06,
        "input_cost_per_token_above_272k_tokens": 5e-06,
        "output_cost_per_token_above_272k_tokens": 2.25e-05,
        "max_input_tokens": 922000,
        "max_output_tokens": 128000,
        "deprecation_date": "2027-03-05",
    },
}
GENAI_PRICES = [
    {
        "id": "openai",
        "models": [
            {"id": "gpt-5.4-mini", "match": {"starts_with": "gpt-5.4-mini"}, "prices": {"input_mtok": 0.75}},
            {
                "id": "gpt-5.4",
                "match": {"or": [{"equals": "gpt-5.4"}, {"regex": "^gpt-5\\.4-2026"}]},
                "prices": [
                    {"prices": {"input_mtok": 99, "output_mtok": 99}},
                    {
                        "constraint": {"start_date": "2026-03-05"},
                        "prices": {
                            "input_mtok": {"base": 2.5, "tiers": [{"start": 272000, "price": 5}]},
                            "output_mtok": {"base": 15, "tiers": [{"start": 272000, "price": 22.5}]},
                            "cache_read_mtok": 0.25,
                        },
                    },
                    {"constraint": {"start_date": "2027-01-01"}, "prices": {"input_mtok": 1}},
                    {"constraint": {"start_time": "00:30:00Z", "end_time": "16:30:00Z"}, "prices": {"input_mtok": 1}},
                ],
            },
        ],
    }
]


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    path = tmp_path / "ours.yaml"
    path.write_text(OURS)
    return path


def _import(source: str, listed: Any, ours: Path, *options: str) -> str:
    file = ours.with_name("list.json")
    file.write_text(json.dumps(listed))
    printed = StringIO()
    call_command("import_prices", source, str(file), str(ours), "--as-of", "2026-11-22", *options, stdout=printed)
    return printed.getvalue()


def test_a_review_is_a_diff_that_keeps_comments_and_order(ours: Path) -> None:
    printed = _import("models.dev", MODELS_DEV, ours)
    assert ours.read_text() == OURS  # never applied unseen
    changed = [line for line in printed.splitlines() if line.startswith(("+", "-")) and line[:3] not in ("+++", "---")]
    assert changed == [
        "-    context_length: 400000      # the older one",
        "+    context_length: 1050000     # the older one",
        "+    max_output_tokens: 128000",
        "-      prompt_per_1m_tokens: 2.00   # was it ever less?",
        "+      prompt_per_1m_tokens: 2.50   # was it ever less?",
        "+      cache_read_per_1m_tokens: 0.25",
        "-          prompt_per_1m_tokens: 4.00",
        "+          prompt_per_1m_tokens: 5.00",
        "-      as_of: 2026-07-24",
        "-      source: by hand",
        "+          as_of: 2026-11-22",
        "+          source: models.dev, key openai/gpt-5.4",
        "+      as_of: 2026-11-22",
        "+      source: models.dev, key openai/gpt-5.4",
        "+    context_length: 256000",
        "+    max_output_tokens: 16384",
    ]
    assert "openai/openai/gpt-5.4: openai/gpt-5.4: deprecated, without a date" in printed
    assert "scaleway/zai/glm-5.2: is priced in EUR, not compared with prompt_per_1m_tokens 1.9" in printed
    assert "1 files differ: nothing was written" in printed


def test_applying_writes_files_that_can_be_seeded_and_the_second_time_nothing(ours: Path) -> None:
    assert "1 files differ: writing them" in _import("models.dev", MODELS_DEV, ours, "--apply")
    model = read_catalogue(ours)["models"][0]
    assert model["pricing"]["prompt_per_1m_tokens"] == Decimal("2.50")
    assert model["pricing"]["tiers"][0]["prompt_per_1m_tokens"] == Decimal("5.00")
    assert read_catalogue(ours)["models"][1]["pricing"]["currency"] == "EUR"
    assert "0 files differ" in _import("models.dev", MODELS_DEV, ours, "--apply")


def test_a_price_that_moves_more_than_twofold_is_held_back(ours: Path) -> None:
    listed = json.loads(json.dumps(MODELS_DEV))
    listed["openai"]["models"]["gpt-5.4"]["cost"] |= {"input": 20, "output": 0, "tiers": []}
    printed = _import("models.dev", listed, ours)
    assert "openai/openai/gpt-5.4: prompt_per_1m_tokens: 2.0 -> 20.00 USD" in printed
    assert "openai/openai/gpt-5.4: completion_per_1m_tokens: 15.0 -> 0.00 USD" in printed
    assert "+      prompt_per_1m_tokens" not in printed
    assert "+      prompt_per_1m_tokens: 20.00" in _import("models.dev", listed, ours, "--accept-price-jumps")


def test_litellm_states_dollars_per_token_batches_and_the_last_day(ours: Path) -> None:
    printed = _import("litellm", LITELLM, ours)
    for line in (
        "+      prompt_per_1m_tokens: 2.50   # was it ever less?",
        "+      batch_prompt_per_1m_tokens: 1.25",
        "+          prompt_per_1m_tokens: 5.00",
        "+    retires_on: 2027-03-05",
        "+    max_output_tokens: 128000",
    ):
        assert line in printed.splitlines()
    assert "922000" not in printed  # the longest prompt is not the context
    twice = LITELLM | {"gpt-5.4": LITELLM["gpt-5.4"] | {"max_output_tokens": 922000}}
    assert "922000" not in _import("litellm", twice, ours)  # nor is it the longest output
    assert "scaleway/zai/glm-5.2: no scaleway/zai/glm-5.2, scaleway/glm-5.2" in printed


def test_genai_prices_match_by_clause_and_are_in_force_by_day(ours: Path) -> None:
    printed = _import("genai-prices", GENAI_PRICES, ours).splitlines()
    assert "+      prompt_per_1m_tokens: 2.50   # was it ever less?" in printed
    assert "+          prompt_per_1m_tokens: 5.00" in printed
    assert "+      source: genai-prices, key openai/gpt-5.4" in printed
    assert "  scaleway/zai/glm-5.2: the list does not have scaleway" in printed


def test_a_region_s_price_is_not_the_list_price(ours: Path) -> None:
    ours.write_text("""\
models:
  - provider: aws-bedrock
    id: qwen/coder
    upstream_model: qwen.coder
    regions:
      - {locode: DEFRA, upstream_region: eu-central-1, pricing: {currency: USD, prompt_per_1m_tokens: 0.60}}
  - provider: mistral
    id: mistralai/large
    upstream_model: large
    regions:
      - {locode: global, pricing: {currency: USD, prompt_per_1m_tokens: 0.50}}
      - {locode: FRPAR, pricing: {currency: USD, prompt_per_1m_tokens: 0.55}}
""")
    listed = {
        "qwen.coder": {"input_cost_per_token": 9e-07},
        "bedrock/eu-central-1/qwen.coder": {"input_cost_per_token": 7e-07},
        "mistral/large": {"input_cost_per_token": 4e-07},
    }
    printed = _import("litellm", listed, ours, "--apply")
    bedrock, mistral = read_catalogue(ours)["models"]
    assert bedrock["regions"][0]["pricing"]["prompt_per_1m_tokens"] == Decimal("0.70")
    assert [region["pricing"]["prompt_per_1m_tokens"] for region in mistral["regions"]] == [
        Decimal("0.40"),
        Decimal("0.55"),
    ]
    assert "mistral/mistralai/large/FRPAR: has a price of its own" in printed


def test_names_with_a_creator_or_a_zone_are_found(ours: Path) -> None:
    ours.write_text("""\
models:
  - provider: scaleway
    id: qwen/coder
    upstream_model: coder
    pricing: {currency: EUR, prompt_per_1m_tokens: 0.75}
    regions: [{locode: FRPAR}]
  - provider: azure-openai
    id: openai/gpt
    upstream_model: gpt
    regions:
      - {locode: SEGVX, upstream_region: swedencentral, pricing: {currency: USD, prompt_per_1m_tokens: 1.30}}
      - {locode: USRIC, upstream_region: eastus2, pricing: {currency: USD, prompt_per_1m_tokens: 1.30}}
      - {locode: JPTYO, upstream_region: japaneast, pricing: {currency: USD, prompt_per_1m_tokens: 1.30}}
""")
    listed = {
        "scaleway/qwen/coder": {"input_cost_per_token": 8e-07, "deprecation_date": "2027-01-31"},
        "azure/gpt": {"input_cost_per_token": 1e-06},
        "azure/eu/gpt": {"input_cost_per_token": 1.1e-06},
        "azure/us/gpt": {"input_cost_per_token": 1.2e-06},
    }
    printed = _import("litellm", listed, ours, "--apply")
    scaleway, azure = read_catalogue(ours)["models"]
    assert scaleway["retires_on"] == "2027-01-31"
    assert [str(region["pricing"]["prompt_per_1m_tokens"]) for region in azure["regions"]] == ["1.10", "1.20", "1.30"]
    assert "azure-openai/openai/gpt/JPTYO: has a price of its own, which the list price of azure/gpt is not" in printed
    assert "not in the list" not in printed


def test_new_offers_are_listed_only_for_ones_own_providers(ours: Path) -> None:
    priced = {"mode": "chat", "litellm_provider": "openai", "input_cost_per_token": 1e-06}
    listed = LITELLM | {
        "gpt-5.4-2026-03-05": priced,
        "gpt-6": priced,
        "gpt-6-2026-09-03": priced,
        "gpt-7-2026-12-24": priced,
        "gpt-6-chat-latest": priced,
        "gpt-3": priced | {"deprecation_date": "2026-10-23"},
        "whisper": priced | {"mode": "audio_transcription"},
        "groq/llama": priced | {"litellm_provider": "groq"},
    }
    assert "\nnew in the list:\n  openai: gpt-6, gpt-7-2026-12-24\n" in _import("litellm", listed, ours)
    many = LITELLM | {f"gpt-7.{number}": priced for number in range(50)}
    (line,) = (line for line in _import("litellm", many, ours).splitlines() if line.startswith("  openai: "))
    assert line.startswith("  openai: 10 more, gpt-7.10, ")


def test_a_check_tells_what_is_dead_dearer_and_new_and_nothing_else(ours: Path) -> None:
    priced = {"mode": "chat", "litellm_provider": "openai", "input_cost_per_token": 1e-06}
    listed = LITELLM | {"gpt-5.4": LITELLM["gpt-5.4"] | {"deprecation_date": "2026-12-01"}, "gpt-6": priced}
    assert (
        _import("litellm", listed, ours, "--check")
        == """
dead, or soon:
  openai/openai/gpt-5.4: retires on 2026-12-01

dearer than sold:
  openai/openai/gpt-5.4: prompt_per_1m_tokens: 2.0 -> 2.50 USD
  openai/openai/gpt-5.4: tiers[272000]: prompt_per_1m_tokens: 4.0 -> 5.00 USD

new in the list:
  openai: gpt-6
"""
    )
    assert _import("litellm", {}, ours, "--check").count("none") == 3
    assert ours.read_text() == OURS


@pytest.mark.parametrize(
    ("limit", "other", "is_same"),
    [
        (131072, 131072, True),
        (131072, 131000, True),
        (131072, 128000, True),
        (131000, 128000, True),
        (65536, 65535, True),
        (262144, 256000, True),
        (1048576, 1000000, True),
        (1048576, 1024000, True),
        (202752, 200000, False),
        (128000, 125000, False),
        (1050000, 1048576, False),
        (131072, 65536, False),
    ],
)
def test_a_limit_is_the_same_in_each_notation(limit: int, other: int, is_same: bool) -> None:
    assert is_same_limit(limit, other) is is_same_limit(other, limit) is is_same


def test_a_limit_in_another_notation_stays(ours: Path) -> None:
    ours.write_text(OURS.replace("400000", "1024000"))
    listed = json.loads(json.dumps(MODELS_DEV))
    listed["openai"]["models"]["gpt-5.4"]["limit"]["context"] = 1048576
    assert "1048576" not in _import("models.dev", listed, ours)


def test_a_wheel_of_litellm_s_is_read(ours: Path) -> None:
    wheel = ours.with_name("litellm-1.0-py3-none-any.whl")
    with zipfile.ZipFile(wheel, "w") as written:
        written.writestr("litellm/model_prices_and_context_window_backup.json", json.dumps(LITELLM))
    printed = StringIO()
    call_command("import_prices", "litellm", str(wheel), str(ours), stdout=printed)
    assert "+    retires_on: 2027-03-05" in printed.getvalue().splitlines()
    wheel.write_bytes(b"no archive")
    with pytest.raises(CommandError, match=r"whl: is not in the format of litellm"):
        call_command("import_prices", "litellm", str(wheel), str(ours), stdout=StringIO())


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("models.dev", "[]"),
        ("models.dev", '{"openai": {}}'),
        ("litellm", "{"),
        ("genai-prices", '{"openai": 1}'),
        ("litellm", '{"gpt-5.4": {"input_cost_per_token": "free"}}'),
    ],
)
def test_what_is_not_in_the_list_s_format_is_refused_in_one_line(ours: Path, source: str, content: str) -> None:
    file = ours.with_name("list.json")
    file.write_text(content)
    with pytest.raises(CommandError, match=r"list\.json.* not in the format of"):
        call_command("import_prices", source, str(file), str(ours), stdout=StringIO())


def test_shipped_files_come_back_to_the_byte(tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    printed = StringIO()
    call_command("import_prices", "models.dev", str(empty), stdout=printed)
    assert "\n0 files differ" in printed.getvalue()


def test_the_names_are_of_providers_that_ship() -> None:
    slugs = {provider["slug"] for path in SHIPPED for provider in read_catalogue(path).get("providers", ())}
    assert {slug for names in NAMES.values() for slug in names} <= slugs
