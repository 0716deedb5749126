"""Reads public lists of prices and limits, each in its own format, into the catalogue's terms and units.

All three are in US dollars. Values that a list leaves out are left out here: absent is not zero.
"""

import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

CURRENCY = "USD"


class Names(NamedTuple):
    """Holds a list's names of one of our providers, and possible names of its models, of which the first found counts.

    {model} is the `upstream_model`, {short} its last segment, {creator} the first segment of our id. A name with
    {upstream_region} or {zone} (`eu` or `us`, depending on the place) gives the price of that place, any other the
    provider's list price.
    """

    provider: str
    models: tuple[str, ...]

    def patterns(self) -> tuple[str, str]:
        """Returns regular expressions for all these names, and for those that give the price of a place."""

        def either(templates: Iterable[str]) -> str:
            return "|".join(re.sub(r"\\{\w+\\}", ".+", re.escape(template)) for template in templates)

        return either(self.models), either(name for name in self.models if is_of_place(name)) or "(?!)"


def is_of_place(template: str) -> bool:
    """Tells whether names by this template give the price of a place."""
    return "{upstream_region}" in template or "{zone}" in template


# If an entry is absent, the list lacks the provider, or the place of our routes.
NAMES: Mapping[str, Mapping[str, Names]] = {
    "models.dev": {
        "anthropic": Names("anthropic", ("anthropic/{model}",)),
        "berget": Names("berget", ("berget/{model}",)),
        "cerebras": Names("cerebras", ("cerebras/{model}",)),
        "cohere": Names("cohere", ("cohere/{model}",)),
        "deepinfra": Names("deepinfra", ("deepinfra/{model}",)),
        "deepseek": Names("deepseek", ("deepseek/{model}",)),
        "evroc": Names("evroc", ("evroc/{model}",)),
        "fireworks": Names("fireworks-ai", ("fireworks-ai/{model}",)),
        "gemini": Names("google", ("google/{model}",)),
        "google-vertex": Names("google-vertex", ("google-vertex/{short}",)),
        "groq": Names("groq", ("groq/{model}",)),
        "infomaniak": Names("infomaniak", ("infomaniak/{model}",)),
        "minimax": Names("minimax", ("minimax/{model}",)),
        "mistral": Names("mistral", ("mistral/{model}",)),
        "moonshot": Names("moonshotai", ("moonshotai/{model}",)),
        "nebius": Names("nebius", ("nebius/{model}",)),
        "openai": Names("openai", ("openai/{model}",)),
        "ovhcloud": Names("ovhcloud", ("ovhcloud/{model}",)),
        "scaleway": Names("scaleway", ("scaleway/{model}",)),
        "stackit": Names("stackit", ("stackit/{model}",)),
        "together": Names("togetherai", ("togetherai/{model}",)),
        "xai": Names("xai", ("xai/{model}",)),
        "zai": Names("zai", ("zai/{model}",)),
    },
    "litellm": {
        "anthropic": Names("anthropic", ("{model}",)),
        "aws-bedrock": Names(
            "bedrock_mantle",
            (
                "bedrock_mantle/{upstream_region}/{model}",
                "bedrock/{upstream_region}/{model}",
                "bedrock_mantle/{model}",
            ),
        ),
        "azure-openai": Names("azure", ("azure/{zone}/{model}", "azure/{model}")),
        "cerebras": Names("cerebras", ("cerebras/{model}",)),
        "cohere": Names("cohere", ("{model}", "cohere/{model}")),
        "deepinfra": Names("deepinfra", ("deepinfra/{model}",)),
        "deepseek": Names("deepseek", ("deepseek/{model}",)),
        "fireworks": Names("fireworks_ai", ("fireworks_ai/{model}",)),
        "gemini": Names("gemini", ("gemini/{model}",)),
        "google-vertex": Names("vertex_ai-language-models", ("vertex_ai/{short}",)),
        "groq": Names("groq", ("groq/{model}",)),
        "minimax": Names("minimax", ("minimax/{model}",)),
        "mistral": Names("mistral", ("mistral/{model}",)),
        "moonshot": Names("moonshot", ("moonshot/{model}",)),
        "nebius": Names("nebius", ("nebius/{model}",)),
        "openai": Names("openai", ("{model}",)),
        "ovhcloud": Names("ovhcloud", ("ovhcloud/{model}",)),
        "sambanova": Names("sambanova", ("sambanova/{model}",)),
        "scaleway": Names("scaleway", ("scaleway/{creator}/{model}", "scaleway/{model}")),
        "together": Names("together_ai", ("together_ai/{model}",)),
        "xai": Names("xai", ("xai/{model}",)),
        "zai": Names("zai", ("zai/{model}",)),
    },
    "genai-prices": {
        "anthropic": Names("anthropic", ("anthropic/{model}",)),
        "cerebras": Names("cerebras", ("cerebras/{model}",)),
        "cohere": Names("cohere", ("cohere/{model}",)),
        "deepseek": Names("deepseek", ("deepseek/{model}",)),
        "fireworks": Names("fireworks", ("fireworks/{model}",)),
        "gemini": Names("google", ("google/{model}",)),
        "google-vertex": Names("google", ("google/{short}",)),
        "groq": Names("groq", ("groq/{model}",)),
        "minimax": Names("minimax", ("minimax/{model}",)),
        "mistral": Names("mistral", ("mistral/{model}",)),
        "moonshot": Names("moonshotai", ("moonshotai/{model}",)),
        "openai": Names("openai", ("openai/{model}",)),
        "ovhcloud": Names("ovhcloud", ("ovhcloud/{model}",)),
        "together": Names("together", ("together/{model}",)),
        "xai": Names("x-ai", ("x-ai/{model}",)),
        "zai": Names("zai", ("zai/{model}",)),
    },
}

Prices = dict[str, Decimal]


@dataclass(frozen=True, slots=True)
class Listed:
    """Holds a model on a list: US dollars per 1,000,000 tokens, by the catalogue's names; limits in tokens.

    `tiers` are whole price lists by `above_prompt_tokens`. `remark` has facts without a field in the catalogue.
    """

    name: str
    prices: Prices
    tiers: Mapping[int, Prices]
    context_length: int | None = None
    max_output_tokens: int | None = None
    retires_on: date | None = None
    remark: str = ""


Find = Callable[[str], Listed | None]


@dataclass(frozen=True, slots=True)
class PriceList:
    """Holds a list that was read: `find` looks a name up, `offered` has the text models of each of its providers."""

    find: Find
    offered: Mapping[str, Sequence[str]]


class BadPriceList(Exception):
    """Reports that the file is not in the list's format."""


# Reading the other lists raises these if one does not have the format that its project describes.
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def read(source: str, path: Path, today: date) -> PriceList:
    """Reads a list, whose names are looked up without regard to case. `today` chooses among dated prices.

    A wheel of litellm is read as the list that it contains. Raises BadPriceList; for a faulty entry, only when it is
    looked up.
    """
    try:
        listed = _READERS[source](json.loads(_content(path), parse_float=Decimal), today)
    except OSError as error:
        raise BadPriceList(f"{path}: cannot be read: {error.strerror}") from None
    except (*_MALFORMED, zipfile.BadZipFile) as error:
        raise BadPriceList(f"{path}: is not in the format of {source}: {error!r}") from None

    def find(name: str) -> Listed | None:
        try:
            return listed.find(name)
        except _MALFORMED as error:
            raise BadPriceList(f"{path}: {name} is not in the format of {source}: {error!r}") from None

    return PriceList(find, listed.offered)


def _content(path: Path) -> bytes:
    if path.suffix != ".whl":
        return path.read_bytes()
    with zipfile.ZipFile(path) as wheel:
        return wheel.read("litellm/model_prices_and_context_window_backup.json")


def _exactly(entries: Iterable[tuple[str, Any]], listed: Callable[[str, Mapping[str, Any]], Listed]) -> Find:
    by_name = {name.lower(): (name, entry) for name, entry in entries}
    return lambda name: listed(*by_name[name.lower()]) if name.lower() in by_name else None


def _price(value: Any, tokens: int = 1) -> Decimal:
    """Returns the price of this number of units of the list, without the noise that binary floats leave in decimals."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or value < 0:
        raise ValueError(f"{value!r} is no price")
    return round(Decimal(value) * tokens, 6)


def _limit(value: Any) -> int | None:
    """Returns the tokens, or None for 0, which lists write for unknown."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _whole_tiers(base: Prices, tiers: Mapping[int, Prices]) -> dict[int, Prices]:
    """Fills in main prices that a tier lacks from the tier below; drops tiers that change nothing."""
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


def _models_dev(document: Any, _today: date) -> PriceList:
    """Reads https://models.dev/api.json: providers with models, US dollars per 1,000,000 tokens."""

    def prices(cost: Mapping[str, Any]) -> Prices:
        return {ours: _price(cost[theirs]) for theirs, ours in _MODELS_DEV.items() if theirs in cost}

    def listed(name: str, model: Mapping[str, Any]) -> Listed:
        cost, limit = model.get("cost", {}), model.get("limit", {})
        tiers = {
            tier["tier"]["size"]: prices(tier) for tier in cost.get("tiers", ()) if tier["tier"]["type"] == "context"
        }
        if not tiers and "context_over_200k" in cost:  # the older form
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
    offered = {
        provider: [f"{provider}/{model}" for model, entry in values["models"].items() if _is_of_text(entry)]
        for provider, values in document.items()
    }
    return PriceList(_exactly(entries, listed), offered)


def _is_of_text(entry: Mapping[str, Any]) -> bool:
    """Tells whether a model writes text, has a price and is not deprecated; old entries have no modalities."""
    outputs = entry.get("modalities", {}).get("output", ["text"])
    return "cost" in entry and "text" in outputs and entry.get("status") != "deprecated"


_LITELLM = {
    "input_cost_per_token": "prompt_per_1m_tokens",
    "output_cost_per_token": "completion_per_1m_tokens",
    "cache_read_input_token_cost": "cache_read_per_1m_tokens",
    "cache_creation_input_token_cost": "cache_write_per_1m_tokens",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h_per_1m_tokens",
    "input_cost_per_token_batches": "batch_prompt_per_1m_tokens",
    "output_cost_per_token_batches": "batch_completion_per_1m_tokens",
}
_LITELLM_MODES = ("chat", "responses", "embedding")
_LITELLM_TIER = re.compile(r"(.+)_above_(\d+)k_tokens")


def _litellm(document: Any, today: date) -> PriceList:
    """Reads litellm's model_prices_and_context_window.json: models by key, US dollars per token.

    `max_input_tokens` is not the context: for OpenAI's models it is the context less the longest output. If the output
    has the same value, one number was written twice.
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
        longest = entry.get("max_output_tokens")
        return Listed(
            name,
            base,
            _whole_tiers(base, tiers),
            max_output_tokens=None if longest == entry.get("max_input_tokens") else _limit(longest),
            retires_on=date.fromisoformat(retires_on) if retires_on else None,
        )

    offered: defaultdict[str, list[str]] = defaultdict(list)
    for name, entry in document.items():
        retires_on = entry.get("deprecation_date")
        gone = retires_on is not None and retires_on <= today.isoformat()
        if entry.get("mode") in _LITELLM_MODES and entry.get("input_cost_per_token") and not gone:
            offered[entry["litellm_provider"]].append(name)
    offered["cohere"] += offered.pop("cohere_chat", ())  # for us they are one provider
    return PriceList(_exactly(document.items(), listed), offered)


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


def _genai_prices(document: Any, today: date) -> PriceList:
    """Reads genai-prices' data.json: providers with models and their names, US dollars per 1,000,000 tokens.

    `context_window` is sometimes the longest prompt and sometimes the context, so it is not used.
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

    offered = {
        provider: [f"{provider}/{model['id']}" for model in models if not model.get("deprecated")]
        for provider, models in providers.items()
    }
    return PriceList(find, offered)


def _matches(clause: Mapping[str, Any], name: str) -> bool:
    ((kind, value),) = clause.items()
    if kind in ("or", "and"):
        return (any if kind == "or" else all)(_matches(part, name) for part in value)
    return _CLAUSES[kind](name, value.lower())


def _in_force(prices: Any, today: date) -> Mapping[str, Any]:
    """Returns the last of dated prices that has begun; prices for some hours of the day are not list prices."""

    def begun() -> Iterator[Mapping[str, Any]]:
        for conditional in prices:
            constraint = conditional.get("constraint", {})
            start = constraint.get("start_date", "") if set(constraint) <= {"start_date"} else None
            if start is not None and start[:10] <= today.isoformat():
                yield conditional["prices"]

    return prices if isinstance(prices, dict) else [*begun()][-1]


_READERS: Mapping[str, Callable[[Any, date], PriceList]] = {
    "models.dev": _models_dev,
    "litellm": _litellm,
    "genai-prices": _genai_prices,
}


def is_same_limit(limit: int, other: int) -> bool:
    """Tells whether two counts of tokens are one limit, written in different ways.

    A limit of 128 x 1024 tokens is written 131072, 131071 (the last that fits), 131000 (cut or rounded to thousands)
    and 128000 (called 128k); one of 1024 x 1024 also 1000000. Steps are of 8 x 1024, because 128000 itself is 125 x
    1024.
    """
    low, high = sorted((limit, other))
    steps = range(low // 1024 // 8 * 8, high // 1000 + 8, 8)
    return low == high or any({low, high} <= _notations(thousands) for thousands in steps)


def _notations(thousands: int) -> set[int]:
    exact = thousands * 1024
    short = {thousands * 1000, exact // 1000 * 1000, round(exact, -3)}
    return {exact, exact - 1, *short} | ({thousands // 1024 * 1_000_000} if thousands % 1024 == 0 else set())
