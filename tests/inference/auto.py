"""Builds a catalogue for automatic routing, and reads its answers.

Every route has an upstream name of its own, so that the simulator counts the calls of each.
"""

import json
from typing import Any

import pytest

from tests import bills
from tests.catalogue import PRICES, catalogue_for, model, provider, region
from tests.chat import answer, stream
from tests.servers.customer import Customer
from tests.servers.simulator import Simulator

Json = dict[str, Any]

REFUSES_CONNECTIONS = "http://127.0.0.1:9/v1"  # the discard port, where nothing listens
CHEAP = PRICES | {"prompt_per_1m_tokens": 0.1}
EMBEDDING_PRICES = {"currency": "EUR", "prompt_per_1m_tokens": 0.1}
FIRST, SECOND, THIRD = "sim", "second", "third"

UPSTREAM_FAILED = (503, "provider_error", "provider_error", None)
TIMED_OUT = (504, "provider_unavailable", "provider_timeout", None)

whole_or_streamed = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])

# Maps how the first pick fails to the fallback reason.
FAILURES = {
    "status:429": "primary_rate_limited",
    "slow-first-byte:30": "primary_timeout",
    "stall:0": "primary_timeout",
    "refused": "primary_unavailable",
    "drop:0": "primary_unavailable",
    "status:502": "primary_unavailable",
    "status:503": "primary_unavailable",
    "status:529": "primary_unavailable",
    "status:404": "primary_error",
    "status:401": "primary_error",
    "trouble:empty": "primary_error",
    "trouble:key": "primary_error",
    "status:408": "primary_error",
    "status:500": "primary_error",
    "redirect": "primary_error",
    "malformed:0": "primary_error",
    "error-frame:0": "primary_error",
}


def at(slug: str, who: str, behaviour: str = "echo", **fields: Any) -> Json:
    """Builds `test/{slug}` at a provider, in Paris at the usual price; its upstream name is `{slug}@{who}`."""
    usual = {"regions": [region("FRPAR")], "upstream_model": f"{behaviour}+{slug}@{who}"}
    return model(slug, provider=who, **{**usual, **fields})


def calls(simulator: Simulator, slug: str, who: str, behaviour: str = "echo") -> int:
    """Returns how often that route has been called."""
    return simulator.stats(f"{behaviour}+{slug}@{who}")["calls"]


def slug_of(behaviour: str) -> str:
    return f"first-{behaviour.replace(':', '-')}"


def failing(behaviour: str) -> list[Json]:
    """Returns a model whose cheaper route fails in this way, and whose other route does not."""
    slug = slug_of(behaviour)
    first = "refuser" if behaviour == "refused" else FIRST
    spoken = "echo" if behaviour == "refused" else behaviour
    return [at(slug, first, spoken, pricing=CHEAP), at(slug, SECOND)]


def catalogue(simulator_url: str) -> Json:
    file = catalogue_for(
        simulator_url,
        at("alone", "american"),
        # The European route emits more and costs more.
        at("sovereign", "sim", regions=[region("DEFRA")]),
        at("sovereign", "american", pricing=CHEAP),
        at("carbon", "sim", regions=[region("DEFRA")], pricing=CHEAP),
        at("carbon", "second"),
        at("cost", "sim"),
        at("cost", "second", pricing=CHEAP),
        *(at("tied", who) for who in (FIRST, SECOND, THIRD)),
        at("tied", "american", pricing=CHEAP),
        *(at("tied-fail", who, "status:503") for who in (FIRST, SECOND, THIRD, "american")),
        *(at("streams-tied", who) for who in (FIRST, SECOND)),
        at("text", FIRST, modality="completion"),
        at("text", SECOND, regions=[region("DEFRA")]),
        # All but the last are better, but none of them may be chosen.
        at("passing", "nokey", pricing=CHEAP),
        at("passing", "sim", pricing=None),
        at("passing", "second", pricing=CHEAP, state="unavailable"),
        at("passing", "third", pricing=CHEAP, regions=[region("FRPAR", state="disabled"), region("DEFRA")]),
        at("passing", "embedder", pricing=CHEAP, modality="embedding"),
        at("passing", "pounds", pricing=CHEAP | {"currency": "GBP"}),
        at("passing", "american", pricing=CHEAP, state="disabled"),
        # The cheap route is first for every request that it can take.
        at("streams", FIRST, pricing=CHEAP, capabilities={"streaming": False}),
        at("streams", SECOND),
        at("calls", FIRST, pricing=CHEAP, capabilities={"streaming": True, "function_calling": False}),
        at("calls", SECOND, capabilities=None),
        at("sees", FIRST, pricing=CHEAP, capabilities={"streaming": True, "image_input": False}),
        at("sees", SECOND),
        at("sees", THIRD, regions=[region("DEFRA")], capabilities={"streaming": True, "image_input": True}),
        at("speaks", "anthropic", pricing=CHEAP),
        at("speaks", SECOND),
        at("lacks", "picky", pricing=CHEAP),
        at("lacks", SECOND),
        at("needy", FIRST, modality="completion", pricing=CHEAP),
        at("needy", "anthropic", capabilities={"streaming": False, "function_calling": False, "image_input": False}),
        at("embeds", FIRST, modality="embedding", pricing=EMBEDDING_PRICES),
        at("unknown-kind", FIRST, modality=None),
        at("all-gone", FIRST, state="disabled"),
        at("all-gone", SECOND, retires_on="2020-01-01"),
        at("all-resting", FIRST, state="unavailable", unavailable_reason="Being moved."),
        at("all-resting", SECOND, state="unavailable"),
        at("all-off", FIRST, regions=[region("FRPAR", state="disabled")]),
        at("all-keyless", "nokey"),
        at("all-unpriced", FIRST, pricing=None),
        at("all-unpriced", SECOND, pricing=PRICES | {"currency": "GBP"}),
        *(entry for behaviour in FAILURES for entry in failing(behaviour)),
        at("messages-themselves", "anthropic", "status:503", pricing=CHEAP),
        at("messages-themselves", SECOND),
        at("responses-themselves", FIRST, "status:503", pricing=CHEAP, modality="responses"),
        at("responses-themselves", SECOND),
        at("breaks", FIRST, "drop:2", pricing=CHEAP),
        at("breaks", SECOND),
        at("three", FIRST, "status:429", pricing=CHEAP),
        at("three", SECOND, "status:500"),
        at("three", THIRD, regions=[region("DEFRA")]),
        at("all-fail", FIRST, "status:429", pricing=CHEAP),
        at("all-fail", SECOND, "status:503"),
        at("all-limited", FIRST, "status:429", pricing=CHEAP),
        at("all-limited", SECOND, "status:429"),
        at("limited-or-lost", FIRST, "status:429", pricing=CHEAP),
        at("limited-or-lost", SECOND, "status:404"),
        at("lost-to-all", FIRST, "status:404", pricing=CHEAP),
        at("lost-to-all", SECOND, "status:404"),
        at("lost-to-one", FIRST, "status:503", pricing=CHEAP),
        at("lost-to-one", SECOND, "status:404"),
        at("unwilling", FIRST, "status:503", pricing=CHEAP),
        at("unwilling", "anthropic"),
        at("unwilling", SECOND, capabilities={"streaming": False}),
        at("unwilling", THIRD, regions=[region("DEFRA")]),
        at("contradicts", FIRST, "bad-usage", pricing=CHEAP),
        at("contradicts", SECOND),
    )
    american = {"country": "US", "eu_native": False, "us_legal_reach": True}
    file["providers"] += [
        *(provider(slug, simulator_url) for slug in (SECOND, THIRD, "embedder", "pounds")),
        provider("american", simulator_url, **american),
        provider("anthropic", simulator_url, dialect="anthropic"),
        provider("picky", simulator_url, refused_parameters=["logit_bias"]),
        provider("refuser", REFUSES_CONNECTIONS),
    ]
    return file


def asked(customer: Customer, slug: str, *, streams: bool, **fields: object) -> tuple[str, Json]:
    """Sends a request to `auto/test/{slug}`, which must succeed, and returns its model and metadata."""
    if not streams:
        result = answer(customer, f"auto/test/{slug}", **fields)
        assert result["choices"][0]["message"]["content"] == "hello there"
        return result["model"], result["gateway_metadata"]
    whole = stream(customer, f"auto/test/{slug}", **fields)
    assert (whole.done, whole.errors, whole.text) == (True, [], "hello there")
    (model_id,) = {chunk["model"] for chunk in whole.frames}
    assert ["gateway_metadata" in chunk for chunk in whole.frames].index(True) == len(whole.frames) - 1
    return model_id, whole.frames[-1]["gateway_metadata"]


def routing_of(metadata: Json) -> Json:
    """Returns the metadata on how the route was chosen."""
    names = {
        "provider", "region", "routing_mode", "routing_reason", "fallback_occurred", "fallback_reason",
        "providers_attempted", "requested_alias", "requested_auto", "eu_sovereign",
    }  # fmt: skip
    return {name: value for name, value in metadata.items() if name in names}


def recorded(customer: Customer) -> Json:
    """Returns the routing columns of the account's only record."""
    columns = (
        "provider, model, region, routing_mode, routing_reason, requested_auto, requested_alias, fallback_reason, "
        "providers_attempted, eu_sovereign"
    )
    ((*values, attempted, sovereign),) = customer.gateway.query(
        f"SELECT {columns} FROM billing_generation WHERE account_id = %s", [bills.hex_of(customer.id)]
    )
    record = dict(zip(columns.split(", "), values, strict=False))
    record["providers_attempted"] = json.loads(attempted) if isinstance(attempted, str) else attempted
    record["eu_sovereign"] = None if sovereign is None else bool(sovereign)
    return record
