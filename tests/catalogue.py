"""Builds the catalogue for tests: each behaviour of the simulator is a model, and each state of a route has one too.

Ids are `{provider}/test/{slug}`. Unless a line below differs, a model is at `sim`, in FRPAR (default) and DEFRA.
"""

from typing import Any

Entry = dict[str, Any]

CREATOR = "test"
PRICES: Entry = {"currency": "EUR", "prompt_per_1m_tokens": 0.6, "completion_per_1m_tokens": 1.2}
DEARER: Entry = {"currency": "EUR", "prompt_per_1m_tokens": 0.9, "completion_per_1m_tokens": 1.8}
USD_PRICES: Entry = {"currency": "USD", "prompt_per_1m_tokens": 0.5, "completion_per_1m_tokens": 1.5}
CACHE_PRICES: Entry = {"cache_read_per_1m_tokens": 0.06, "cache_write_per_1m_tokens": 0.75}
# The tier is for prompts of more than 22 tokens: three words and the upstream's 20 cached tokens.
TIER: Entry = {"above_prompt_tokens": 22, "prompt_per_1m_tokens": 1.2, "completion_per_1m_tokens": 1.8}
USD_PER_EUR = 1.25
# These are figures per token: [low, value, high].
FIGURES: Entry = {
    "wh": {
        "output": [0.0001, 0.0002, 0.0008],
        "prompt": [0.00001, 0.00002, 0.00009],
        "cached": [0, 0.0000002, 0.000001],
    },
    "embodied_g": {"output": 0.00001, "prompt": 0.000001, "cached": [0, 0.00000001, 0.0000001]},
    "pue": 1.2,
    "method": "tokens-2026-11",
    "as_of": "2026-10-30",
}

# Maps a slug to the model name that is sent upstream, if it differs from the slug (see simulator/behaviour.py).
BEHAVIOURS: dict[str, str] = {
    "echo": "echo",
    "chunks": "chunks:5:0.01",
    "slow-chunks": "chunks:50:0.1",
    "many-chunks": "chunks:1000:0",
    "endless": "endless",
    "tools": "tools",
    "empty-arguments": "tools+empty-arguments",
    "reasoning": "reasoning",
    "refusal": "refusal",
    "logprobs": "logprobs",
    "extra-fields": "extra-fields",
    "describe": "describe",
    "cached": "cached:20",
    "cache-write": "cache-write:20:10",
    "no-usage": "no-usage",
    "late-usage": "late-usage:0.3",
    "never-usage": "late-usage:30",
    "usage-on-finish": "usage-on-finish",
    "usage-every-chunk": "usage-every-chunk",
    "bad-usage": "bad-usage",
    "negative-usage": "bad-usage:negative",
    "fraction-usage": "bad-usage:fraction",
    "wrong-total": "bad-usage:total",
    "slow-first-byte": "slow-first-byte:5",
    "pings": "pings:5:0.2",
    "pause-after-role": "pause-after-role:5",
    "stall": "stall:2",
    "stall-at-once": "stall:0",
    "stall-after-finish": "stall:finish",
    "drop": "drop:2",
    "drop-at-once": "drop:0",
    "malformed": "malformed:2",
    "malformed-at-once": "malformed:0",
    "error-frame": "error-frame:2",
    "error-frame-at-once": "error-frame:0",
    "truncated": "truncated",
    "empty": "empty",
    "html": "html:200",
    "redirect": "redirect",
    "no-done": "no-done",
    "rejects-stream-options": "rejects-stream-options",
    "energy": "energy:36",
    "impact": "impact:36000",
    "absurd-energy": "energy:99999999",
    "comments": "comments",
    "crlf": "crlf",
    "multiline": "multiline",
    "split": "split:1",
    "close-delimited": "close-delimited",
    **{
        f"status-{code}": f"status:{code}" for code in (400, 401, 403, 404, 408, 409, 422, 425, 429, 500, 502, 503, 529)
    },
}


def catalogue_for(simulator_url: str, *extra_models: Entry) -> Entry:
    """Returns the whole file; the simulator at this base URL (`http://…/v1`) serves its providers."""
    return {
        "exchange_rates": {"as_of": "2026-10-30", "base": "EUR", "rates": {"USD": USD_PER_EUR}},
        "places": {
            "FRPAR": {"name": "Paris", "country": "FR", "eu": True, "eea": True},
            "DEFRA": {"name": "Frankfurt am Main", "country": "DE", "eu": True, "eea": True},
            "USQAS": {"name": "Ashburn, VA", "country": "US", "eu": False, "eea": False},
        },
        "grid": {"FR": 44, "DE": 344, "US": 384, "WORLD": 473, "source": "A table", "as_of": "2025-09-08"},
        "providers": providers(simulator_url),
        "models": [*behaviour_models(), *states(), *other_providers(), *extra_models],
    }


def providers(simulator_url: str) -> list[Entry]:
    """Returns providers without a credential, with one, with a missing one, in the US, and with another dialect."""
    return [
        provider("sim", simulator_url),
        provider("simkey", simulator_url, credential_env="SIM_API_KEY"),
        provider("nokey", simulator_url, credential_env="SIM_ABSENT_KEY"),
        provider("simus", simulator_url, country="US", eu_native=False, us_legal_reach=True),
        provider("simanthropic", simulator_url, dialect="anthropic"),
    ]


def provider(slug: str, base_url: str, **fields: Any) -> Entry:
    """Builds a provider entry, which is European unless the fields say otherwise."""
    usual = {"name": slug.title(), "country": "FR", "eu_native": True, "us_legal_reach": False, "dialect": "openai"}
    return {"slug": slug, "base_url": base_url, "credential_env": None, **usual, **fields}


def model(slug: str, **fields: Any) -> Entry:
    """Builds a model entry; a field given as None is left out."""
    usual = {
        "provider": "sim",
        "id": f"{CREATOR}/{slug}",
        "name": slug.replace("-", " ").capitalize(),
        "upstream_model": BEHAVIOURS.get(slug, "echo"),
        "modality": "chat",
        "context_length": 131072,
        "max_output_tokens": 8192,
        "capabilities": {"streaming": True, "function_calling": True},
        "energy_per_token_wh": 0.0002,
        "pricing": PRICES,
        "regions": [region("FRPAR", default=True), region("DEFRA")],
    }
    return {name: value for name, value in {**usual, **fields}.items() if value is not None}


def region(locode: str, **fields: Any) -> Entry:
    """Builds a region entry, at the model's price unless the fields name one."""
    return {"locode": locode, **fields}


def behaviour_models() -> list[Entry]:
    """Returns one model for each behaviour of the simulator."""
    cache = {slug: {"pricing": PRICES | CACHE_PRICES} for slug in ("cached", "cache-write")}
    return [model(slug, **cache.get(slug, {})) for slug in BEHAVIOURS]


def states() -> list[Entry]:
    """Returns one model for each special state of a route."""
    return [
        model("two-prices", regions=[region("FRPAR", default=True), region("DEFRA", pricing=DEARER)]),
        model("worldwide", regions=[region("global"), region("FRPAR"), region("USQAS")]),
        model("global-only", regions=None),
        model("resting", state="unavailable", unavailable_reason="Being moved to new hardware."),
        model("gone", state="disabled"),
        model("half-closed", regions=[region("FRPAR", default=True), region("DEFRA", state="disabled")]),
        model("unpriced", pricing=None),
        model("dollars", pricing=USD_PRICES),
        model(
            "tiered",
            upstream_model="cached:20",
            pricing={**PRICES, **CACHE_PRICES, "tiers": [{**TIER, "cache_read_per_1m_tokens": 0.12}]},
        ),
        model(
            "tiered-embedding",
            upstream_model="cached:20",
            modality="embedding",
            pricing={
                "currency": "EUR",
                "prompt_per_1m_tokens": 0.1,
                "tiers": [{"above_prompt_tokens": 22, "prompt_per_1m_tokens": 0.2}],
            },
        ),
        model("unknown-energy", energy_per_token_wh=None),
        model(
            "footprint",
            upstream_model="cached:20",
            energy_per_token_wh=None,
            energy=FIGURES,
            regions=[
                region("FRPAR", default=True),
                region(
                    "DEFRA",
                    energy={"kind": "provider", "wh": {"output": 0.0002, "prompt": 0.00003, "cached": 0.000001}},
                ),
            ],
        ),
        model("unknown-modality", modality=None),
        model("completion", modality="completion"),
        model("embedding", modality="embedding", pricing={"currency": "EUR", "prompt_per_1m_tokens": 0.1}),
        # All tests on a server share a day's quota: on the shared gateway only test_daily_quota.py uses this model.
        model("quota", regions=[region("FRPAR", default=True, daily_token_quota=50)]),
    ]


def other_providers() -> list[Entry]:
    """Returns `test/echo` at further providers, so that auto routing has a choice, and models of the other dialect."""
    return [
        model("echo", provider="simkey", regions=[region("DEFRA", default=True)]),
        model("echo", provider="nokey"),
        model("echo", provider="simus", pricing=USD_PRICES, regions=[region("USQAS", default=True)]),
        *(
            model(slug, provider="simanthropic")
            for slug in ("echo", "chunks", "tools", "cache-write", "stall", "status-500")
        ),
    ]
