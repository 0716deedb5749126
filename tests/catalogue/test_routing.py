"""An explicit id is a pin: it leads to the one route that it names, or to a refusal (docs/api.md#model-ids)."""

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.pricing import Price, Rates
from catalogue.routing import pinning
from catalogue.routing.model_ids import ExplicitId, parse_model_id
from catalogue.routing.routes import Offer, Route
from gateway.edge.exception_handler import headers_of
from gateway.errors import ApiError
from tests.routes import PRICE, offer, snapshot, upstream

TODAY = date(2026, 11, 21)


def pin(text: str, *offers: Offer, today: date = TODAY) -> Route:
    wanted = parse_model_id(text)
    assert isinstance(wanted, ExplicitId)
    return pinning.pin(snapshot(*offers), wanted, today)


def refusal(text: str, *offers: Offer, today: date = TODAY) -> ApiError:
    with pytest.raises(ApiError) as caught:
        pin(text, *offers, today=today)
    return caught.value


def answered(error: ApiError) -> tuple[int, str, str | None, str | None]:
    return error.status, error.type, error.code, error.param


@pytest.mark.parametrize("locode", ["FRPAR", "DEFRA"])
def test_the_region_that_is_named_is_the_one(locode: str) -> None:
    assert pin(f"sim/test/echo/{locode}", offer()).id == f"sim/test/echo/{locode}"


def test_without_a_region_it_is_the_default() -> None:
    assert pin("sim/test/echo", offer()).id == "sim/test/echo/FRPAR"
    assert pin("sim/test/echo", offer(default_locode="DEFRA")).id == "sim/test/echo/DEFRA"


def test_global_can_be_named_if_there_is_a_global_route() -> None:
    assert pin("sim/test/echo/global", offer(regions="FRPAR global")).id == "sim/test/echo/global"


@pytest.mark.parametrize("text", ["sim/test/other", "other/test/echo", "sim/other/echo", "SIM/test/echo"])
def test_what_is_not_offered_is_not_found(text: str) -> None:
    error = refusal(text, offer())
    assert answered(error) == (404, "not_found", "not_found", "model")
    assert text.partition("/")[0] in error.message


def test_global_is_not_found_on_a_regional_model() -> None:
    error = refusal("sim/test/echo/global", offer())
    assert answered(error) == (404, "not_found", "not_found", "model")
    assert "only in specific regions (FRPAR, DEFRA)" in error.message
    assert refusal("sim/test/echo/GLOBAL", offer()).message == error.message


@pytest.mark.parametrize("locode", ["USQAS", "usqas", "WORLD"])
def test_a_region_that_is_not_served_is_never_substituted(locode: str) -> None:
    error = refusal(f"sim/test/echo/{locode}", offer())
    assert answered(error) == (503, "provider_unavailable", "provider_unavailable", "model")
    assert "Available regions: FRPAR, DEFRA." in error.message
    assert headers_of(error) == {"x-should-retry": "false"}


def test_a_region_that_is_switched_off_is_not_served() -> None:
    error = refusal("sim/test/echo/DEFRA", offer(regions="FRPAR defra"))
    assert answered(error) == (503, "provider_unavailable", "provider_unavailable", "model")
    assert "Available regions: FRPAR." in error.message


def test_a_default_that_is_switched_off_is_not_substituted() -> None:
    assert refusal("sim/test/echo", offer(regions="frpar DEFRA")).code == "provider_unavailable"
    assert "Available regions: none." in refusal("sim/test/echo", offer(regions="frpar")).message


def test_an_unavailable_model_says_why() -> None:
    error = refusal("sim/test/echo", offer(state="unavailable", unavailable_reason="Moving house."))
    assert answered(error) == (503, "provider_unavailable", "model_unavailable", "model")
    assert error.message.endswith("is unavailable: Moving house.")
    assert refusal("sim/test/echo", offer(state="unavailable")).message.endswith("is unavailable.")


def test_a_disabled_model_has_the_odd_type() -> None:
    error = refusal("sim/test/echo/DEFRA", offer(state="disabled"))
    assert answered(error) == (404, "internal_server_error", "model_not_found", "model")


def test_a_model_retires_when_its_last_day_has_passed() -> None:
    retiring = offer(retires_on=TODAY)
    assert pin("sim/test/echo", retiring).id == "sim/test/echo/FRPAR"
    assert refusal("sim/test/echo", retiring, today=TODAY + timedelta(days=1)).code == "model_not_found"


slugs, models, locodes = (
    st.sampled_from(["sim", "other"]),
    st.sampled_from(["test/echo", "test/other"]),
    st.sampled_from(["global", "FRPAR", "DEFRA"]),
)
offers = st.builds(
    offer,
    slugs,
    models,
    st.lists(st.sampled_from(["global", "FRPAR", "frpar", "DEFRA"]), min_size=1, max_size=3, unique_by=str.upper).map(
        " ".join
    ),
    state=st.sampled_from(["served", "unavailable", "disabled"]),
)


@given(st.lists(offers, max_size=4), st.builds(ExplicitId, slugs, models, st.none() | locodes))
def test_a_pin_never_leads_anywhere_else(offered: list[Offer], wanted: ExplicitId) -> None:
    catalogue = snapshot(*offered)
    try:
        found = pinning.pin(catalogue, wanted, TODAY)
    except ApiError:
        return
    held = catalogue.offers[wanted.provider, wanted.canonical_id]
    assert (found.upstream.slug, found.canonical_id) == (wanted.provider, wanted.canonical_id)
    assert found.locode == (wanted.locode or held.default_locode)
    assert found.is_served
    assert held.state == "served"


@pytest.mark.parametrize("modality", ["embedding", "responses", None])
def test_a_modality_that_does_not_fit_is_refused(modality: str | None) -> None:
    found = replace(pin("sim/test/echo", offer()), modality=modality)
    with pytest.raises(ApiError) as caught:
        pinning.require_modality(found, ("chat", "completion"), "chat completions")
    assert answered(caught.value) == (400, "invalid_request_error", "invalid_request_error", "model")
    what = "an unknown modality" if modality is None else f"the modality {modality!r}"
    assert f"has {what}, which cannot be used with chat completions." in caught.value.message
    assert ("Use POST /v1/" in caught.value.message) is (modality is not None)
    pinning.require_modality(replace(found, modality="completion"), ("chat", "completion"), "chat completions")


def test_a_provider_without_its_credential_is_refused_without_naming_it() -> None:
    found = pin("sim/test/echo", offer())
    pinning.require_configured(found)
    with pytest.raises(ApiError) as caught:
        pinning.require_configured(replace(found, upstream=upstream(configured=False)))
    assert answered(caught.value) == (503, "provider_unavailable", "provider_not_configured", None)
    assert "'sim'" in caught.value.message
    assert "secret" not in caught.value.message


def test_the_price_and_its_rates_are_frozen_together() -> None:
    found = pin("sim/test/echo", offer())
    assert pinning.require_price(snapshot(USD="1.25"), found, "USD") == (PRICE, Rates(Decimal("1.25"), Decimal(1)))


@pytest.mark.parametrize(
    ("price", "currency"), [(None, "EUR"), (PRICE, "CHF"), (replace(PRICE, currency="CHF"), "EUR")]
)
def test_what_cannot_be_billed_is_not_served(price: Price | None, currency: str) -> None:
    found = replace(pin("sim/test/echo", offer()), price=price)
    with pytest.raises(ApiError) as caught:
        pinning.require_price(snapshot(USD="1.25"), found, currency)
    assert answered(caught.value) == (503, "provider_error", "provider_error", None)
    assert caught.value.retry is False


def test_a_credential_is_never_printed() -> None:
    assert "sim-secret" not in repr(pin("sim/test/echo", offer()))
