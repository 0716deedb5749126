"""What the inference endpoints share: plain Django views that authenticate, read, parse and render.

DRF's views would parse and negotiate at three times the cost; its serializers still define the requests.
"""

import functools
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from accounts import budgets
from gateway.errors import NOTHING_BILLED, InvalidRequest, ReplicaGivesUp
from gateway.exception_handler import from_exception, method_not_allowed, options, render
from gateway.jsonbody import parse_object, read_body
from gateway.steps import step

from .admission import Payer, authenticate
from .upstream.client import WorkerStopped
from .watch import ClientLeft

Handler = Callable[[HttpRequest, Payer, dict[str, Any]], HttpResponseBase]
ALLOWED = ("POST",)
# Who receives it has closed its sending side only, in HTTP/1.0, where nothing can tell that from leaving.
CLOSED_ITS_SIDE = "The client closed its side of the connection before its answer began. Nothing was billed."


def inference_endpoint(handler: Handler) -> Callable[[HttpRequest], HttpResponseBase]:
    """A POST endpoint: who, then what, then the handler; every exception in the envelope."""

    @csrf_exempt
    @functools.wraps(handler)
    def view(request: HttpRequest) -> HttpResponseBase:
        if request.method == "OPTIONS":
            return options(ALLOWED)
        limits: dict[str, str] = {}
        try:
            with step("authenticating the key", NOTHING_BILLED):
                payer = authenticate(request.META.get("HTTP_AUTHORIZATION"))
            if request.method != "POST":
                return method_not_allowed(request, ALLOWED)
            limits = budgets.spend_request(payer.key_id, payer.budgets)
            response = handler(request, payer, parse_object(read_body(request)))
        except ClientLeft:
            response = render(InvalidRequest(CLOSED_ITS_SIDE))
        except WorkerStopped:
            response = render(ReplicaGivesUp("This replica is stopping. Nothing was billed: retry."))
        except Exception as error:  # noqa: BLE001  # the boundary: known errors are rendered, others logged as 500
            response = render(from_exception(error))
        for name, value in limits.items():
            response[name] = value
        return response

    return view
