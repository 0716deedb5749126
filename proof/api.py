"""Serves `GET /v1/generation/{id}/receipt` (docs/api.md#receipts)."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.keys import caller_of_request
from billing.records_api import generation_of_account
from gateway.edge.control_view import ControlView
from gateway.errors import InvalidRequest, NotFound, ReceiptNotReady

from . import log_key, receipts, sequencer


class ReceiptQuery(serializers.Serializer[Any]):
    """Reads the query. `size` is the size of an older checkpoint, with which the receipt shall be consistent."""

    size = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)


class Receipt(ControlView):
    """Proves that the ledger entry of a generation of the account is in the log."""

    doing = "making the receipt"

    def get(self, request: Request, generation_id: str) -> Response:
        """Answers `{object: receipt, generation_id, leaf, index, proof, checkpoint}`, and what `size` asks for."""
        fields = ReceiptQuery(data=request.query_params.dict())
        fields.is_valid(raise_exception=True)
        record = generation_of_account(caller_of_request(request).account_id, generation_id)
        if record.cost is None:
            raise NotFound("This generation was not billed, so it has no ledger entry and no receipt.")
        receipt = receipts.receipt_of(record.pk)
        if receipt is None:
            if log_key.current() is None:
                raise NotFound("This gateway keeps no transparency log.")
            raise ReceiptNotReady(headers={"Retry-After": str(round(sequencer.EVERY_SECONDS))})
        body = receipt.body(record.public_id)
        if "size" in fields.validated_data:
            size = fields.validated_data["size"]
            if size > receipt.prover.checkpoint.size:
                raise InvalidRequest.of_field("size", "is larger than the log, which had fewer leaves so far.")
            body |= {"consistent_with": size, "consistency": receipt.prover.consistency_with(size)}
        return Response(body)
