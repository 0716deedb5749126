"""Builds the gateway of a replay: every recording is a model of its provider, at prices that differ for each bucket."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from tests import catalogue
from tests.replay.recordings import Recording
from tests.replay.upstream import CUT

CREDIT = "1000000"
# No price is a multiple or a sum of others, so a token in the wrong bucket changes the bill.
PRICES = {
    "prompt": Decimal("3.1"),
    "cache_read": Decimal("0.37"),
    "cache_write": Decimal("4.3"),
    "cache_write_1h": Decimal("7.9"),
    "completion": Decimal("17.3"),
}
# Some providers' totals include tokens that no other count includes, as in the catalogue that ships.
TOTAL_INCLUDES = {"google-compat": "total_includes_reasoning", "mistral": "total_includes_audio_prompts"}
MODALITIES = {
    "chat": "chat",
    "messages": "chat",
    "responses": "responses",
    "completions": "completion",
    "embeddings": "embedding",
}
CUT_REGION = "FRPAR"
# The gateway requests a whole answer as a stream from this many tokens on: for recorded streams, always.
ENVIRONMENT = {"GATEWAY_AGGREGATE_OVER_TOKENS": "0"}


def slug(recording: Recording) -> str:
    """Returns the slug of the recording's provider. A provider with several dialects is listed once for each."""
    return f"{recording.provider}-messages" if recording.api == "messages" else recording.provider


def model_id(recording: Recording, *, cut: bool = False) -> str:
    """Returns the id that a client names: the model in its default region, or in the one whose bodies are cut."""
    return f"{slug(recording)}/recorded/{recording.id.lower()}/{CUT_REGION if cut else 'global'}"


def catalogue_of(recordings: Iterable[Recording], upstream_url: str) -> dict[str, Any]:
    """Builds the catalogue file."""
    recordings = list(recordings)
    providers = {
        slug(recording): catalogue.provider(
            slug(recording),
            upstream_url,
            dialect="anthropic" if recording.api == "messages" else "openai",
            developer_role=True,
            **({TOTAL_INCLUDES[recording.provider]: True} if recording.provider in TOTAL_INCLUDES else {}),
        )
        for recording in recordings
    }
    return {
        "exchange_rates": {"as_of": "2026-10-30", "base": "EUR", "rates": {"USD": catalogue.USD_PER_EUR}},
        "places": {CUT_REGION: {"name": "Paris", "country": "FR", "eu": True, "eea": True}},
        "grid": {"FR": 44, "WORLD": 473, "source": "A table", "as_of": "2025-09-08"},
        "providers": list(providers.values()),
        "models": [_model(recording) for recording in recordings],
    }


def _model(recording: Recording) -> dict[str, Any]:
    prices = {f"{name}_per_1m_tokens": float(price) for name, price in PRICES.items()}
    return catalogue.model(
        "",
        provider=slug(recording),
        id=f"recorded/{recording.id.lower()}",
        name=recording.id,
        upstream_model=recording.id,
        modality=MODALITIES[recording.api],
        context_length=None,
        max_output_tokens=None,
        aggregate=recording.streamed,
        pricing={"currency": "EUR", **prices},
        regions=[
            catalogue.region("global", default=True),
            catalogue.region(CUT_REGION, upstream_model=recording.id + CUT),
        ],
    )


def upstream_model(recording: Recording, *, cut: bool = False) -> str:
    """Returns the model name that the provider receives."""
    return recording.id + CUT if cut else recording.id
