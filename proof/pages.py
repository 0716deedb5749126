"""Lets members download what proves their bill: the receipt of a request, and a statement with proofs."""

import orjson
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone

from billing.models import Generation
from billing.usage.statement import FORMATS, StatementTotals
from dashboard.credit import StatementForm
from dashboard.parts.access import AccountContext, account_context, account_page, signed_in_page
from dashboard.parts.downloads import download, refused, refused_choice
from gateway.ids import parse_generation_id

from . import exports, receipts
from .api import ReceiptQuery


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


@account_page("GET")
def statement_proofs(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """Streams the statement of `since` to `until` with the proof of each entry, as `export_usage --proofs` does.

    `size` is the number of leaves of an older checkpoint. Answers 400 for bad values, 404 without a log.
    """
    form, query = StatementForm(request.GET.dict(), timezone.now()), ReceiptQuery(data=request.GET.dict())
    if not form.is_valid():
        return refused_choice(form)
    if not query.is_valid():
        return refused("size: Enter the number of leaves of a checkpoint.")
    size, checkpoint = query.validated_data.get("size", 0), receipts.published()
    if checkpoint is None:
        raise Http404
    if size > checkpoint.size:
        return refused(f"size: The log has only {checkpoint.size} leaves.")
    period, (blocks, content_type) = form.period, FORMATS["jsonl"]
    lines = exports.lines_with_proofs(current.account, period, StatementTotals(), size)
    name = f"{period.since:%Y-%m-%d}-{period.until:%Y-%m-%d}.proofs.jsonl"
    return download(blocks(lines), content_type, current, name)
