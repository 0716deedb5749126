"""Public lists of prices and limits, each in its own format, as figures in the catalogue's words and units.

All three state US dollars. What a list leaves out, this leaves out: absent is not zero.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

CURRENCY = "USD"

# What each list calls our providers, and how it names a model of theirs: {model} is the `upstream_model`, {short} its
# last segment. A name with {upstream_region} states that region's price, any other the provider's list price. Absent:
# the list does not have the provider, or not the place that our routes are in.
NAMES: Mapping[str, Mapping[str, str]] = {
    "models.dev": {
        "anthropic": "anthropic/{model}",
        "berget": "berget/{model}",
        "deepinfra": "deepinfra/{model}",
        "evroc": "evroc/{model}",
        "fireworks": "fireworks-ai/{model}",
        "google-vertex": "google-vertex/{short}",
        "groq": "groq/{model}",
        "infomaniak": "infomaniak/{model}",
        "mistral": "mistral/{model}",
        "nebius": "nebius/{model}",
        "openai": "openai/{model}",
        "ovhcloud": "ovhcloud/{model}",
        "scaleway": "scaleway/{model}",
        "stackit": "stackit/{model}",
        "together": "togetherai/{model}",
    },
    "litellm": {
        "anthropic": "{model}",
        "aws-bedrock": "bedrock/{upstream_region}/{model}",
        "deepinfra": "deepinfra/{model}",
        "fireworks": "fireworks_ai/{model}",
        "google-vertex": "vertex_ai/{short}",
        "groq": "groq/{model}",
        "mistral": "mistral/{model}",
        "nebius": "nebius/{model}",
        "openai": "{model}",
        "ovhcloud": "ovhcloud/{model}",
        "scaleway": "scaleway/{model}",
        "together": "together_ai/{model}",
    },
    "genai-prices": {
        "anthropic": "anthropic/{model}",
        "fireworks": "fireworks/{model}",
        "google-vertex": "google/{short}",
        "groq": "groq/{model}",
        "mistral": "mistral/{model}",
        "openai": "openai/{model}",
        "ovhcloud": "ovhcloud/{model}",
        "together": "together/{model}",
    },
}

Prices = dict[str, Decimal]


@dataclass(frozen=True, slots=True)
class Listed:
    """A model on a list: US dollars per 1,000,000 tokens, by the catalogue's names; limits in tokens.

    `tiers` are whole price lists by `above_prompt_tokens`. `remark` is what has no field in the catalogue.
    """

    name: str
    prices: Prices
    tiers: Mapping[int, Prices]
    context_length: int | None = None
    max_output_tokens: int | None = None
    retires_on: date | None = None
    remark: str = ""


Find = Callable[[str], Listed | None]


class BadPriceList(Exception):
    """The file is not in the list's format."""


# What reading the other lists' tables raises where one is not as its project describes it.
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def read(source: str, path: Path, today: date) -> Find:
    """Looks names up in a list, without regard to case. `today` chooses among dated prices.

    Raises BadPriceList, of an entry when that is looked up.
    """
    try:
        look_up = _READERS[source](json.loads(path.read_bytes(), parse_float=Decimal), today)
    except OSError as error:
        raise BadPriceList(f"{path}: cannot be read: {error.strerror}") from None
    except _MALFORMED as error:
        raise BadPriceList(f"{path}: is not in the format of {source}: {error!r}") from None

    def find(name: str) -> Listed | None:
        try:
            return look_up(name)
        except _MALFORMED as error:
            raise BadPriceList(f"{path}: {name} is not in the format of {source}: {error!r}") from None

    return find


def _exactly(entries: Iterable[tuple[str, Any]], listed: Callable[[str, Mapping[str, Any]], Listed]) -> Find:
    by_name = {name.lower(): (name, entry) for name, entry in entries}
    return lambda name: listed(*by_name[name.lower()]) if name.lower() in by_name else None


def _price(value: Any, tokens: int = 1) -> Decimal:
    """Returns the price of this number of units of the list, without the noise that binary floats leave in decimals."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or value < 0:
        raise ValueError(f"{value!r} is no price")
    return round(Decimal(value) * tokens, 6)


def _limit(value: Any) -> int | None:
    """Tokens; lists write 0 for unknown."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _whole_tiers(base: Prices, tiers: Mapping[int, Prices]) -> dict[int, Prices]:
    """A main price that a tier does not state is as below it; a tier that changes nothing is none."""
    whole: dict[int, Prices] = {}
    below = base
    for above in sorted(tiers):
        if not tiers[above].items() <= below.items():
            main = {name: below[name] for name in ("prompt_per_1m_tokens", "completion_per_1m_tokens") if name in below}
            whole[above] = below = main | tiers[above]
    return whole


_MODELS_DEV = {
    "input": "prompt_per_1m_tokens",
    "output": "completion_per_1m_tokens",
    "cache_read": "cache_read_per_1m_tokens",
    "cache_write": "cache_write_per_1m_tokens",
}


def _models_dev(document: Any, _today: date) -> Find:
    """https://models.dev/api.json: providers with models, US dollars per 1,000,000 tokens."""

    def prices(cost: Mapping[str, Any]) -> Prices:
        return {ours: _price(cost[theirs]) for theirs, ours in _MODELS_DEV.items() if theirs in cost}

    def listed(name: str, model: Mapping[str, Any]) -> Listed:
        cost, limit = model.get("cost", {}), model.get("limit", {})
        tiers = {
            tier["tier"]["size"]: prices(tier) for tier in cost.get("tiers", ()) if tier["tier"]["type"] == "context"
        }
        if not tiers and "context_over_200k" in cost:  # the older way to say it
            tiers = {200_000: prices(cost["context_over_200k"])}
        base = prices(cost)
        return Listed(
            name,
            base,
            _whole_tiers(base, tiers),
            context_length=_limit(limit.get("context")),
            max_output_tokens=_limit(limit.get("output")),
            remark="deprecated, without a date" if model.get("status") == "deprecated" else "",
        )

    entries = (
        (f"{provider}/{model}", entry)
        for provider, values in document.items()
        for model, entry in values["models"].items()
    )
    return _exactly(entries, listed)


_LITELLM = {
    "input_cost_per_token": "prompt_per_1m_tokens",
    "output_cost_per_token": "completion_per_1m_tokens",
    "cache_read_input_token_cost": "cache_read_per_1m_tokens",
    "cache_creation_input_token_cost": "cache_write_per_1m_tokens",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h_per_1m_tokens",
    "input_cost_per_token_batches": "batch_prompt_per_1m_tokens",
    "output_cost_per_token_batches": "batch_completion_per_1m_tokens",
}
_LITELLM_TIER = re.compile(r"(.+)_above_(\d+)k_tokens")


def _litellm(document: Any, _today: date) -> Find:
    """litellm's model_prices_and_context_window.json: models by key, US dollars per token.

    `max_input_tokens` is not the context: of OpenAI's models it is the context less the longest output.
    """

    def listed(name: str, entry: Mapping[str, Any]) -> Listed:
        base: Prices = {}
        tiers: dict[int, Prices] = {}
        for key, value in entry.items():
            tier = _LITELLM_TIER.fullmatch(key)
            ours = _LITELLM.get(tier[1] if tier else key)
            if ours is not None and value is not None:
                prices = tiers.setdefault(int(tier[2]) * 1000, {}) if tier else base
                prices[ours] = _price(value, 1_000_000)
        retires_on = entry.get("deprecation_date")
        return Listed(
            name,
            base,
            _whole_tiers(base, tiers),
            max_output_tokens=_limit(entry.get("max_output_tokens")),
            retires_on=date.fromisoformat(retires_on) if retires_on else None,
        )

    return _exactly(document.items(), listed)


_GENAI_PRICES = {
    "input_mtok": "prompt_per_1m_tokens",
    "output_mtok": "completion_per_1m_tokens",
    "cache_read_mtok": "cache_read_per_1m_tokens",
    "cache_write_mtok": "cache_write_per_1m_tokens",
}
_CLAUSES: Mapping[str, Callable[[str, str], bool]] = {
    "equals": str.__eq__,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": str.__contains__,
    "regex": lambda name, pattern: re.search(pattern, name) is not None,
}


def _genai_prices(document: Any, today: date) -> Find:
    """genai-prices' data.json: providers with models that say which names they match, US dollars per 1,000,000 tokens.

    `context_window` is sometimes the longest prompt and sometimes the context, so it is not taken.
    """
    providers = {provider["id"]: provider["models"] for provider in document}

    def find(name: str) -> Listed | None:
        provider, _, model = name.partition("/")
        for entry in providers.get(provider, ()):
            if _matches(entry["match"], model.lower()):
                prices = _in_force(entry["prices"], today)
                stated = {ours: prices[theirs] for theirs, ours in _GENAI_PRICES.items() if theirs in prices}
                base = {
                    name: _price(price["base"] if isinstance(price, dict) else price) for name, price in stated.items()
                }
                tiers: dict[int, Prices] = {}
                for field, price in stated.items():
                    for tier in price["tiers"] if isinstance(price, dict) else ():
                        tiers.setdefault(tier["start"], {})[field] = _price(tier["price"])
                return Listed(f"{provider}/{entry['id']}", base, _whole_tiers(base, tiers))
        return None

    return find


def _matches(clause: Mapping[str, Any], name: str) -> bool:
    ((kind, value),) = clause.items()
    if kind in ("or", "and"):
        return (any if kind == "or" else all)(_matches(part, name) for part in value)
    return _CLAUSES[kind](name, value.lower())


def _in_force(prices: Any, today: date) -> Mapping[str, Any]:
    """The last of dated prices that has begun; prices of some hours of the day are nobody's list price."""

    def begun() -> Iterator[Mapping[str, Any]]:
        for conditional in prices:
            constraint = conditional.get("constraint", {})
            start = constraint.get("start_date", "") if set(constraint) <= {"start_date"} else None
            if start is not None and start[:10] <= today.isoformat():
                yield conditional["prices"]

    return prices if isinstance(prices, dict) else [*begun()][-1]


_READERS: Mapping[str, Callable[[Any, date], Find]] = {
    "models.dev": _models_dev,
    "litellm": _litellm,
    "genai-prices": _genai_prices,
}
