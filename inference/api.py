"""`POST /v1/chat/completions`, `/v1/completions` and `/v1/embeddings`: requests to calls, answers to responses."""

from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from .admission import Payer
from .call import Call
from .completions import complete, stream
from .endpoint import inference_endpoint
from .failures import GENERATION_HEADER
from .serializers import chat_call, completion_call, embeddings_call
from .watch import Client

STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would collect the stream
}


@inference_endpoint
def chat_completions(request: HttpRequest, payer: Payer, body: dict[str, Any]) -> HttpResponseBase:
    """Chat completions, whole or streamed."""
    return _answer(request, payer, chat_call(body))


@inference_endpoint
def completions(request: HttpRequest, payer: Payer, body: dict[str, Any]) -> HttpResponseBase:
    """Text completions, whole or streamed."""
    return _answer(request, payer, completion_call(body))


@inference_endpoint
def embeddings(request: HttpRequest, payer: Payer, body: dict[str, Any]) -> HttpResponseBase:
    """Embeddings of texts or token ids."""
    return _answer(request, payer, embeddings_call(body))


def _answer(request: HttpRequest, payer: Payer, call: Call) -> HttpResponseBase:
    client = Client.of(request)
    if call.stream:
        frames = stream(call, payer, client)
        headers = STREAM_HEADERS | _headers(frames.generation_id, frames.adjusted)
        return StreamingHttpResponse(frames, headers=headers)
    answer = complete(call, payer, client)
    return HttpResponse(
        orjson.dumps(answer.body),
        content_type="application/json",
        headers=_headers(answer.generation_id, answer.adjusted),
    )


def _headers(generation_id: str, adjusted: tuple[str, ...]) -> dict[str, str]:
    """The join key, and which parameters were not sent upstream as they came."""
    headers = {GENERATION_HEADER: generation_id}
    if adjusted:
        headers["X-Gateway-Adjusted-Params"] = ", ".join(adjusted)
    return headers
