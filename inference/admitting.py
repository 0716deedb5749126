"""Admitting a request: everything of ours that can still refuse it, and the freezing of what its bill depends on."""

from dataclasses import replace

from django.utils import timezone

from aliases.resolve import resolve
from catalogue import model_ids, routing, snapshot
from catalogue.routes import Route
from gateway.errors import NOTHING_BILLED, InsufficientCredits, InvalidRequest
from gateway.steps import step

from .admission import Payer
from .call import Call, Endpoint
from .candidates import purpose_of, side_for
from .modality import Side
from .records import Admission


def admit(call: Call, payer: Payer) -> tuple[Admission, Side]:
    """Refuses in this order: balance, routing, modality, what the dialect cannot pass, credentials, price."""
    if payer.balance <= 0:
        raise InsufficientCredits
    with step("routing the request", NOTHING_BILLED):
        catalogue = snapshot.current()
        if call.endpoint == Endpoint.EMBEDDING and call.model.startswith(f"{model_ids.AUTO}/"):
            raise InvalidRequest.of_field("model", "must name a provider: embeddings have no automatic routing.")
        purpose = purpose_of(call, payer)
        resolution = resolve(
            call.model, account_id=payer.account_id, purpose=purpose, snapshot=catalogue, now=timezone.now()
        )
        route = resolution.route
        side = side_for(call, route)
        routing.require_configured(route)
        price, rates = routing.require_price(catalogue, route, payer.currency)
    admission = Admission(
        call=call, payer=payer, resolution=resolution, price=price, rates=rates, attempted=(route.upstream.slug,)
    )
    return admission, side


def readmit(admission: Admission, route: Route, *, reason: str) -> tuple[Admission, Side]:
    """The same request on the next candidate of its ranking, after the first failed for `reason`."""
    with step("routing the request", NOTHING_BILLED):
        side = side_for(admission.call, route)
        price, rates = routing.require_price(snapshot.current(), route, admission.payer.currency)
    readmitted = replace(
        admission,
        resolution=replace(admission.resolution, route=route),
        price=price,
        rates=rates,
        attempted=(*admission.attempted, route.upstream.slug),
        fallback_reason=admission.fallback_reason or reason,
    )
    return readmitted, side
