"""The energy and embodied carbon of tokens (docs/energy.md): formulas, bounds, published measurements, the command."""

import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from catalogue.footprint.energy import METHOD, EnergyFigures, PerToken, Range, figures_in
from catalogue.loader.files import read
from tests.servers.process import ROOT
from tools.energy import HIGH, LOW, VALUE, Facts, Size, decode, estimate, gpus_needed, prefill
from tools.management.commands.estimate_energy import SHIPPED, SIZES, catalogue_file

DOCUMENT = ROOT / "docs" / "energy.md"
FRENCH_GRAMS_PER_KWH = 44

counts = st.integers(0, 10**6)
requests = st.fixed_dictionaries({"output": counts, "prompt": counts, "cached": counts})
sizes = st.builds(lambda active, more: Size(active * more, active), st.floats(0.1, 2000), st.floats(1, 40))


def dense(billions: float) -> Facts:
    return of(Size(billions, billions))


def of(size: Size) -> Facts:
    return Facts(size, size)


def embodied(figures: EnergyFigures) -> PerToken:
    assert figures.embodied_g is not None
    return figures.embodied_g


LLAMA = estimate(dense(70.6))


def test_a_turn_of_an_agent_with_a_cached_prompt_takes_about_a_watt_hour() -> None:
    """100,000 prompt tokens, of which 95,000 were cached, and 500 of output on Llama 3.3 70B."""
    total = LLAMA.wh.of(output=500, prompt=5_000, cached=95_000)
    assert Decimal("0.8") < total.value < Decimal("1.2")
    output_alone = LLAMA.wh.of(output=500, prompt=0, cached=0)
    assert output_alone.value == Decimal("0.33")


def test_output_is_what_ecologits_says() -> None:
    """70.6 B parameters at 16 bits need 169.4 GB, so 4 GPUs of 80 GB: 0.04053 + 0.04020 mWh each, and the server."""
    assert gpus_needed(Size(70.6, 70.6), VALUE) == 4
    work = decode(Size(70.6, 70.6), VALUE)
    assert work.seconds == pytest.approx(0.0479 + 0.01996 + 0.01947, abs=1e-4)
    assert work.wh == pytest.approx(
        1.2 * (4 * (0.04053e-3 + 0.04020e-3) + 0.08734 / 3600 * 1200 * 4 / 8 / 64), rel=1e-3
    )
    assert work.embodied_g == pytest.approx(0.08734 * 4 * 985.5e3 / (64 * 94_608_000), rel=1e-3)


def test_a_prompt_token_is_its_operations() -> None:
    """141.2 GFLOP at 40 % of 989.4 TFLOP/s are 0.357 ms of 850 W, with a PUE of 1.2."""
    work = prefill(Size(70.6, 70.6), VALUE)
    assert work.seconds == pytest.approx(0.3568e-3, rel=1e-3)
    assert work.wh == pytest.approx(0.3568e-3 * 850 / 3600 * 1.2, rel=1e-3)


def test_a_cached_token_is_a_hundredth_of_a_processed_one() -> None:
    assert LLAMA.wh.cached.value * 100 == LLAMA.wh.prompt.value
    assert LLAMA.wh.cached.low == 0


def test_a_stated_pue_and_gpus_hold_in_every_case() -> None:
    known = estimate(replace(of(Size(70.6, 70.6, gpus=8)), pue=(1.0, 1.0)))
    assert known.wh.prompt.value == pytest.approx(LLAMA.wh.prompt.value / Decimal("1.2"), rel=Decimal("0.01"))
    assert known.wh.output.value > LLAMA.wh.output.value


def test_an_embedding_counts_its_prompt_alone_and_its_figures_are_wider() -> None:
    figures = estimate(replace(dense(8), embedding=True)).wh
    assert figures.output == figures.prompt
    plain = estimate(dense(8)).wh.prompt
    assert figures.prompt.high / figures.prompt.value > plain.high / plain.value


@given(sizes, sizes, st.booleans())
def test_a_figure_lies_within_its_bounds(one: Size, other: Size, embedding: bool) -> None:
    smallest, largest = sorted((one, other), key=lambda size: size.active_b)
    smallest = replace(smallest, total_b=min(one.total_b, other.total_b))
    largest = replace(largest, total_b=max(one.total_b, other.total_b))
    found = estimate(Facts(smallest, largest, embedding=embedding))
    for figures in (found.wh, embodied(found)):
        for figure in (figures.output, figures.prompt, figures.cached):
            assert 0 <= figure.low <= figure.value <= figure.high


def test_figures_survive_being_stored() -> None:
    assert figures_in(json.loads(json.dumps(LLAMA.stored()))) == LLAMA
    assert (LLAMA.method, LLAMA.pue) == (METHOD, Decimal("1.2"))
    bare = EnergyFigures(LLAMA.wh)
    assert figures_in(json.loads(json.dumps(bare.stored()))) == bare


@given(requests, requests)
def test_energy_is_additive_over_requests(one: dict[str, int], other: dict[str, int]) -> None:
    both = {kind: one[kind] + other[kind] for kind in one}
    for figures in (LLAMA.wh, embodied(LLAMA)):
        assert figures.of(**both) == figures.of(**one) + figures.of(**other)


@given(requests, st.sampled_from(["output", "prompt", "cached"]), st.integers(1, 10**6))
def test_energy_grows_with_each_kind_of_token(request_: dict[str, int], kind: str, more: int) -> None:
    grown = {**request_, kind: request_[kind] + more}
    before, after = LLAMA.wh.of(**request_), LLAMA.wh.of(**grown)
    assert after.low >= before.low
    assert after.value > before.value
    assert after.high > before.high


@dataclass(frozen=True)
class Measured:
    """A published figure and the request that it is of, in Wh, or in grams with hardware where `in_grams`."""

    what: str
    least: float
    most: float
    facts: Facts
    output: int
    prompt: int = 0
    cached: int = 0
    in_grams: bool = False

    def ours(self) -> Range:
        estimated, tokens = estimate(self.facts), (self.output, self.prompt, self.cached)
        output, prompt, cached = tokens
        wh = estimated.wh.of(output=output, prompt=prompt, cached=cached)
        if not self.in_grams:
            return wh
        grams = [each * FRENCH_GRAMS_PER_KWH / 1000 for each in astuple(wh)]
        return Range(*grams) + embodied(estimated).of(output=output, prompt=prompt, cached=cached)

    def row(self) -> str:
        ours = self.ours()
        measured = f"{self.least:.2g}" if self.least == self.most else f"{self.least:.2g}-{self.most:.2g}"
        unit = "g" if self.in_grams else "Wh"
        if self.most < ours.low:
            verdict = f"**outside: our low is {float(ours.low) / self.most:.2g} times as much**"
        elif self.least > ours.high:
            verdict = f"**outside: {self.least / float(ours.high):.2g} times our high**"
        else:
            verdict = "within"
        figures = " | ".join(f"{float(each):.2g}" for each in (ours.low, ours.value, ours.high))
        return f"| {self.what} | {measured} {unit} | {figures} | {verdict} |"


DEEPSEEK = of(Size(671, 37))
MEASUREMENTS = [
    Measured("GreenPT, mistral-medium-3.5-128b, 36 + 187 tokens", 0.8645, 0.8645, dense(128), 187, prompt=36),
    Measured(
        "GreenPT, embedding of 2 tokens, taken as 4 B",
        0.001578,
        0.001578,
        replace(dense(4), embedding=True),
        0,
        prompt=2,
    ),
    Measured("Berget, Gemma 4 31B, 600 (198 cached) + 482 tokens", 0.1707, 0.1707, dense(31), 482, 402, 198),
    Measured("Mistral Large 2, life cycle, 400 tokens", 1.14, 1.14, dense(123), 400, in_grams=True),
    Measured("Mazurek and Gabriel, Llama 3.3 70B, batch 8, 2,035 + 300", 0.39, 0.78, dense(70.6), 300, prompt=2035),
    Measured("Samsi et al., LLaMA 65B, an output token", 3 / 3600, 4 / 3600, dense(65.2), 1),
    Measured("ML.ENERGY, Llama 3.1 8B, batch 64, an output token", 0.12 / 3600, 0.20 / 3600, dense(8.03), 1),
    Measured("Serial Alice, Mistral 7B, batch 128, an output token", 13.8e-6, 13.8e-6, dense(7.25), 1),
    Measured("Serial Alice, Mistral 7B, batch 1, an output token", 732e-6, 732e-6, dense(7.25), 1),
    Measured("DeepSeek-V3, a prompt token", 7.04e-5, 7.04e-5, DEEPSEEK, 0, prompt=1),
    Measured("DeepSeek-V3, an output token", 1.53e-4, 1.53e-4, DEEPSEEK, 1),
]


@pytest.mark.parametrize("measured", MEASUREMENTS, ids=lambda measured: measured.what)
def test_the_documentation_compares_with_each_published_measurement(measured: Measured) -> None:
    assert measured.row() in DOCUMENT.read_text(encoding="utf-8").splitlines()


def assumptions() -> Iterator[str]:
    for name in ("gpu", "bits", "batch", "utilisation", "embedding_utilisation", "cached", "pue", "embodied_kg"):
        low, value, high = (getattr(serving, name) for serving in (LOW, VALUE, HIGH))
        yield f"| `{name}` | {low} | {value} | {high} |"


def test_the_documentation_states_what_is_assumed() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for row in assumptions():
        assert row in text


def test_the_shipped_figures_are_computed_from_the_sizes() -> None:
    assert SHIPPED.read_text(encoding="utf-8") == catalogue_file(read(SIZES)), "run manage.py estimate_energy --write"


def command(*arguments: str) -> str:
    printed = StringIO()
    call_command("estimate_energy", *arguments, stdout=printed)
    return printed.getvalue()


def test_the_command_derives_the_figures_of_a_size() -> None:
    text = command("--total-b", "70.6", "--active-b", "70.6")
    assert "0.00066" in text
    assert f"{LLAMA.wh.prompt.high:f}" in text
    assert command("meta/llama-3.3-70b-instruct") == text


def test_a_guessed_size_is_derived_at_both_ends() -> None:
    assert "value (largest)" in command("anthropic/claude-haiku-4.5")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "Name a model"),
        (("no/such-model",), "not in model_sizes.yaml"),
        (("--total-b", "0"), "above zero"),
        (("--total-b", "7", "--gpus", "0"), "above zero"),
        (("--total-b", "7", "--pue", "0.9"), "PUE"),
    ],
)
def test_the_command_refuses_what_no_model_has(arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        command(*arguments)
