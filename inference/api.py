"""`POST /v1/chat/completions`: how requests become calls and answers become responses."""

from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from .admission import Payer
from .completions import admit, complete, stream
from .endpoint import inference_endpoint
from .serializers import chat_call

STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would collect the stream
}


@inference_endpoint
def chat_completions(request: HttpRequest, payer: Payer, body: dict[str, Any]) -> HttpResponseBase:
    """Chat completions, whole or streamed."""
    call = chat_call(body)
    admission = admit(call, payer)
    client = request.META.get("gunicorn.socket")
    if call.stream:
        frames = stream(admission, client)
        return StreamingHttpResponse(frames, headers=STREAM_HEADERS | {"X-Generation-Id": admission.public_id})
    answer = complete(admission, client)
    return HttpResponse(
        orjson.dumps(answer.body),
        content_type="application/json",
        headers={"X-Generation-Id": answer.generation_id},
    )
