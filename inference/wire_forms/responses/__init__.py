"""The Responses API, stateless: `POST /v1/responses` on every route that chats (docs/api.md#responses).

A request is translated to a chat (`requests`, `conversation`, `tools`), and the normalised answer back to output items
(`answers`, `output`). Over an upstream that has the API itself it goes as it came (`passing`). Nothing is kept: what
asks for a memory is refused, with the stateless way to do it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from catalogue.models import Modality
from catalogue.routes import Route
from gateway.errors import ApiError, InvalidRequest
from gateway.ids import RESPONSE_PREFIX
from gateway.responses import PlainResponse

from ...call import Call, Shape
from ..base import Endpoint, Framing, Report, WireForm
from .answers import ResponseFraming, response_of, with_bill
from .conversation import KEPT_NOWHERE
from .passing import LastResponse, PassedFraming, ResponseEvents, output_bytes, own_of, require_output
from .requests import call_of
from .tools import Json

# What the client calls a field of the chat that its request was translated to.
NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
    "reasoning_effort": "reasoning.effort",
    "logprobs": "top_logprobs",
    "tools": "tools",
    "tool_choice": "tool_choice",
}


class ResponsesForm(WireForm):
    """See WireForm."""

    path, endpoint, id_prefix = "responses", Endpoint.RESPONSES, RESPONSE_PREFIX
    count_path, nothing_below = "responses/input_tokens", KEPT_NOWHERE
    tells_rate_limits = True

    def call(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        """See WireForm."""
        return call_of(body)

    def counted(self, prompt_tokens: int) -> dict[str, Any]:
        """See WireForm."""
        return {"object": "response.input_tokens", "input_tokens": prompt_tokens}

    def over(self, route: Route) -> WireForm:
        """See WireForm."""
        return PASSED if route.modality == Modality.RESPONSES else self

    def upstream_call(self, call: Call, route: Route) -> Call:
        """See WireForm."""
        return replace(call, shape=Shape.CHAT)

    def refusal(self, error: ApiError, environ: Mapping[str, Any]) -> PlainResponse:
        """See WireForm. A field of the chat goes by the client's name, without a path that is not the client's."""
        path = error.param or ""
        name = path.partition(".")[0].partition("[")[0]
        is_the_chats = name not in ("tools", "tool_choice") or ".function" in path  # else within the client's own tools
        if isinstance(error, InvalidRequest) and name in NAMES and is_the_chats:
            error.message = error.message.replace(f"`{error.param}`", f"`{NAMES[name]}`")
            error.param = NAMES[name]
        return super().refusal(error, environ)

    def framing(self, normaliser: Any, call: Call) -> Framing:
        """See WireForm."""
        return ResponseFraming(normaliser.closing([]), call.asked)

    def answer(self, normalised: dict[str, Any], call: Call, report: Report) -> dict[str, Any]:
        """See WireForm."""
        return response_of(normalised, call.asked, report)


class PassedForm(ResponsesForm):
    """See WireForm. Over upstreams that have the Responses API themselves."""

    shape = Shape.RESPONSES

    def upstream_call(self, call: Call, route: Route) -> Call:
        """See WireForm."""
        return replace(call, body=call.as_it_came or {})

    def normaliser(self, *, id: str, created: int, model: str, choices: int) -> ResponseEvents:
        """See WireForm."""
        return ResponseEvents(id=id, model=model)

    def framing(self, normaliser: Any, call: Call) -> Framing:
        """See WireForm."""
        return PassedFraming(normaliser)

    def aggregate(self) -> LastResponse:
        """See WireForm."""
        return LastResponse()

    def normalised(self, answer: Mapping[str, Any], call: Call, *, id: str, created: int, model: str) -> Json:
        """See WireForm."""
        require_output(answer)
        return {**answer, **own_of(id, model)}

    def output_bytes(self, normalised: Mapping[str, Any]) -> int:
        """See WireForm."""
        return output_bytes(normalised)

    def answer(self, normalised: Json, call: Call, report: Report) -> Json:
        """See WireForm."""
        return with_bill(normalised, report)


PASSED = PassedForm()
