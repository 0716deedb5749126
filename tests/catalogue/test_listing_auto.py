"""The entries of auto ids show what their candidates have in common (docs/api.md#models)."""

import pytest

from tests.catalogue import PRICES, TIER, USD_PRICES, model, region
from tests.listing import AMERICAN, PLACES, SWISS, Read, auto, catalogue
from tests.seeding import Entry, Seed

pytestmark = pytest.mark.django_db


def test_candidates_are_in_the_order_of_the_ranking_with_ties_by_id(seed: Seed, read: Read) -> None:
    cheaper = PRICES | {"prompt_per_1m_tokens": 0.1}
    tied = {"b": {}, "a": {}, "american": AMERICAN}
    seed(
        catalogue(
            model("echo", regions=[region("DEFRA"), region("FRPAR")]),
            model("echo", provider="b", regions=[region("FRPAR")]),
            model("echo", provider="a", regions=[region("FRPAR"), region("NOOSL", pricing=cheaper)]),
            model("echo", provider="american", regions=[region("FRPAR", grid_carbon_intensity_gco2_per_kwh=0)]),
            providers=tied,
        )
    )
    assert auto(read, "echo")["auto_routing"]["candidates"] == [
        "a/test/echo/NOOSL",
        "a/test/echo/FRPAR",
        "b/test/echo/FRPAR",
        "sim/test/echo/FRPAR",
        "sim/test/echo/DEFRA",
        "american/test/echo/FRPAR",
    ]


def test_an_auto_entry_says_everything_that_its_candidates_share(seed: Seed, read: Read) -> None:
    seed(
        catalogue(
            model(
                "echo", context_length=8_000, max_output_tokens=500, regions=[region("FRPAR")], created=1_700_000_000
            ),
            model(
                "echo",
                provider="swiss",
                context_length=4_000,
                regions=[region("DEFRA")],
                pricing=USD_PRICES,
                created=1_600_000_000,
            ),
            model("echo", provider="keyless", context_length=10, created=1_500_000_000),
            providers={"swiss": SWISS, "keyless": {"credential_env": "TEST_KEY_THAT_NOBODY_SETS"}},
        )
    )
    entry = auto(read, "echo")
    assert entry == {
        "id": "auto/test/echo",
        "object": "model",
        "created": 1_600_000_000,
        "owned_by": "test",
        "name": "Echo",
        "provider": "auto",
        "context_length": 4_000,
        "max_output_tokens": 500,
        "modality": "chat",
        "capabilities": {"streaming": True, "function_calling": True},
        "auto_routing": {
            "candidates": ["sim/test/echo/FRPAR", "swiss/test/echo/DEFRA"],
            "pricing_range": {
                "prompt_per_1m_tokens": {"min": 0.4, "max": 0.6},
                "completion_per_1m_tokens": {"min": 1.2, "max": 1.2},
                "currency": "EUR",
            },
            "carbon_range": {
                "carbon_per_token_gco2e": {"min": 0.0000088, "max": 0.0000688},
                "grid_carbon_intensity_gco2_per_kwh": {"min": 44, "max": 344},
            },
        },
    }


def test_ranking_and_range_go_by_base_prices(seed: Seed, read: Read) -> None:
    dearer = {**PRICES, "prompt_per_1m_tokens": 0.61}
    offers = [
        model("echo", provider=slug, regions=[region("FRPAR")], pricing=pricing)
        for slug, pricing in (("a", dearer), ("b", {**PRICES, "tiers": [TIER]}))
    ]
    seed(catalogue(*offers, providers={"a": {}, "b": {}}))
    envelope = auto(read, "echo")["auto_routing"]
    assert envelope["candidates"] == ["b/test/echo/FRPAR", "a/test/echo/FRPAR"]
    assert envelope["pricing_range"]["prompt_per_1m_tokens"] == {"min": 0.6, "max": 0.61}


@pytest.mark.parametrize(
    ("other", "pricing_range", "carbon_range"),
    [
        ({}, True, True),
        ({"pricing": None}, False, True),
        ({"pricing": PRICES | {"currency": "GBP"}}, False, True),
        ({"energy_per_token_wh": None}, True, False),
        ({"regions": [region("ISREY")]}, True, False),
        # A route that cannot be chosen does not affect the range.
        ({"pricing": None, "state": "unavailable"}, True, True),
        ({"pricing": None, "modality": "embedding"}, True, True),
        ({"pricing": None, "provider": "keyless"}, True, True),
        ({"pricing": None, "regions": [region("DEFRA", state="disabled")]}, True, True),
        ({"energy_per_token_wh": None, "state": "disabled"}, True, True),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_range_is_omitted_if_one_figure_is_missing(
    seed: Seed, read: Read, other: Entry, pricing_range: bool, carbon_range: bool
) -> None:
    second = model("echo", **{"provider": "swiss", "regions": [region("DEFRA")], **other})
    file = catalogue(
        model("echo", regions=[region("FRPAR")]),
        second,
        providers={"swiss": SWISS, "keyless": {"credential_env": "TEST_KEY_THAT_NOBODY_SETS"}},
    )
    file["places"] = PLACES | {"ISREY": {"name": "Reykjavik", "country": "IS", "eu": False, "eea": True}}
    seed(file)
    envelope = auto(read, "echo")["auto_routing"]
    assert ("pricing_range" in envelope, "carbon_range" in envelope) == (pricing_range, carbon_range)


@pytest.mark.parametrize("limit", ["context_length", "max_output_tokens"])
def test_a_limit_is_omitted_if_one_offer_lacks_it(seed: Seed, read: Read, limit: str) -> None:
    file = catalogue(model("echo"), model("echo", provider="swiss", **{limit: None}), providers={"swiss": SWISS})
    seed(file)
    assert {"context_length", "max_output_tokens"} - set(auto(read, "echo")) == {limit}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"streaming": True, "function_calling": False}, {"streaming": False, "function_calling": True}, (True, True)),
        ({"streaming": False, "function_calling": False}, {"streaming": False}, (False, None)),
        (
            {"streaming": False, "function_calling": False},
            {"streaming": True, "function_calling": False},
            (True, False),
        ),
        ({"streaming": True, "image_input": True}, None, (True, None)),
        ({"streaming": False}, None, None),
        (None, None, None),
    ],
)
def test_an_auto_entry_can_do_what_any_candidate_can(
    seed: Seed, read: Read, first: Entry | None, second: Entry | None, expected: tuple[bool, bool | None] | None
) -> None:
    other = model("echo", provider="swiss", capabilities=second)
    seed(catalogue(model("echo", capabilities=first), other, providers={"swiss": SWISS}))
    listed = auto(read, "echo").get("capabilities")
    if expected is None:
        assert listed is None
    else:
        streaming, function_calling = expected
        known = {} if function_calling is None else {"function_calling": function_calling}
        assert listed == {"streaming": streaming, **known}
