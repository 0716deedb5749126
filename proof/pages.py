"""Lets members download the receipt of a request, which its page links to."""

import orjson
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from billing.models import Generation
from dashboard.parts.access import account_context, signed_in_page
from gateway.ids import parse_generation_id

from . import receipts


@signed_in_page("GET")
def record_receipt(request: HttpRequest, generation_id: str) -> HttpResponse:
    """Answers the receipt as the API does. Until there is one, leads back to the request's page."""
    record = get_object_or_404(Generation, pk=parse_generation_id(generation_id))
    account_context(request, record.account_id)
    receipt = receipts.receipt_of(record.pk)
    if receipt is None:
        messages.info(request, "This request has no receipt yet. Try again in a minute.")
        return redirect("usage-record", generation_id=record.public_id)
    body = orjson.dumps(receipt.body(record.public_id), option=orjson.OPT_INDENT_2)
    headers = {"Content-Disposition": f'attachment; filename="{record.public_id}.receipt.json"'}
    return HttpResponse(body, content_type="application/json", headers=headers)
