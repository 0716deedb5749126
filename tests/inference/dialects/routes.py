"""Builds routes and calls by hand: dialects are pure functions, so their tests need no catalogue."""

from dataclasses import replace
from typing import Any

from catalogue.pricing import EnergyFactors
from catalogue.routing.routes import Route, Upstream
from inference.call import Call, Shape

CREDENTIAL = "test-credential-that-must-not-leak"


def upstream(**fields: Any) -> Upstream:
    usual = Upstream(
        slug="acme",
        name="Acme Inference",
        country="FR",
        eu_native=True,
        us_legal_reach=False,
        dialect="openai",
        base_url="https://api.acme.example/v1",
        auth_header="",
        auth_scheme="",
        extra_headers={},
        stream_options=True,
        developer_role=False,
        reasoning_content=True,
        refused_parameters=frozenset(),
        total_includes=frozenset(),
        status_override="",
        configured=True,
        credential=CREDENTIAL,
    )
    return replace(usual, **fields)


def route(provider: Upstream | None = None, **fields: Any) -> Route:
    usual = Route(
        region_id=1,
        upstream=provider or upstream(),
        canonical_id="test/model",
        locode="FRPAR",
        place=None,
        is_served=True,
        modality="chat",
        upstream_model="model-upstream",
        base_url="https://par.acme.example/v1/",
        max_tokens_field="max_tokens",
        context_length=131072,
        max_output_tokens=8192,
        can_stream=True,
        can_call_functions=True,
        can_take_images=True,
        aggregate=True,
        thinking="budget",
        published=None,
        price=None,
        energy=EnergyFactors(None, None, None),
        daily_token_quota=0,
    )
    return replace(usual, **fields)


def call(*messages: dict[str, Any], shape: Shape = Shape.CHAT, **fields: Any) -> Call:
    """Builds a call, by default of chat: these messages, or one hello. Other fields go into its body."""
    own = {name: fields.pop(name) for name in ("stream", "include_usage", "max_tokens", "choices") if name in fields}
    sent = list(messages) or [{"role": "user", "content": "hello"}]
    body = {"messages": sent, **fields} if shape == Shape.CHAT else fields
    return Call(shape=shape, model="acme/test/model", body=body, **own)
