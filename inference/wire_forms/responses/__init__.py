"""The Responses API, stateless: `POST /v1/responses` on every route that chats (docs/api.md#responses).

A request becomes a chat (`requests`, `conversation`, `tools`), and the answer output items (`answers`, `output`). Over
an upstream that has the API it goes as it came (`passing`). What asks for a memory is refused, with the stateless way
to do it.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from catalogue.models import Modality
from catalogue.routing.routes import Route
from gateway.edge.checks import Json
from gateway.ids import RESPONSE_PREFIX

from ...call import Call, Shape
from ...dialects import DIALECTS
from ..base import (
    Endpoint,
    WireForm,
    results_in_text,
)
from ..envelopes import for_route, is_envelope
from ..framing import (
    Framing,
    Report,
)
from ..passing import require_objects
from .answers import ResponseFraming, response_of, with_bill
from .conversation import KEPT_NOWHERE
from .passing import LastResponse, PassedResponse, output_bytes, own_of
from .requests import CHAT_NAMES, UNSENT, call_of

# A path into the messages of a chat: which, which of its calls, and what of that.
IN_MESSAGES = re.compile(r"messages\[(\d+)\](?:\.tool_calls\[(\d+)\])?(.*)")
# Within a message, what a chat has a level more of.
NESTED = re.compile(r"(?<=\.image_url)\.url|\.(?:file|function)(?=\.)")


class ResponsesForm(WireForm):
    """Responses, as chats over upstreams that have no such API."""

    path, endpoint, id_prefix = "responses", Endpoint.RESPONSES, RESPONSE_PREFIX
    count_path, nothing_below = "responses/input_tokens", KEPT_NOWHERE
    is_asked_by_websocket = True
    tells_rate_limits = True
    has_old_calls = False

    def call(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        return call_of(body)

    def counted(self, prompt_tokens: int) -> dict[str, Any]:
        return {"object": "response.input_tokens", "input_tokens": prompt_tokens}

    def over(self, route: Route) -> WireForm:
        return PASSED if route.modality == Modality.RESPONSES else TRANSLATED

    def upstream_call(self, call: Call, route: Route) -> Call:
        messages, untold = for_route(call.body["messages"], route, "encrypted_content")
        if not DIALECTS[route.upstream.dialect].results_in_parts:
            messages, has_moved = results_in_text(messages)
            if has_moved:
                untold["function_call_output"] = None
        body = {**call.body, "messages": messages}
        return replace(call, shape=Shape.CHAT, body=body, adjusted=(*call.adjusted, *untold))

    def name_as_sent(self, path: str, call: Call) -> str:
        """The client's name: of a message the item, with the path within; of any other field the whole."""
        if place := IN_MESSAGES.fullmatch(path):
            number, within = int(place[1]), NESTED.sub("", place[3])
            item = call.asked.places[number][0 if place[2] is None else 1 + int(place[2])]
            if call.body["messages"][number]["role"] == "tool":
                within = within.replace(".content", ".output", 1)
            return "input" if item is None else f"input[{item}]{within}"
        name = path.partition(".")[0].partition("[")[0]
        if name == "logprobs" and "top_logprobs" not in (call.as_it_came or {}):
            return "include"
        if name in ("tools", "tool_choice"):
            return name if ".function" in path else path
        return CHAT_NAMES.get(name, path)

    def framing(self, normaliser: Any, call: Call) -> Framing:
        return ResponseFraming(normaliser.closing([]), call.asked)

    def answer(self, normalised: dict[str, Any], call: Call, report: Report) -> dict[str, Any]:
        return response_of(normalised, call.asked, report)


class PassedForm(ResponsesForm):
    """Responses over upstreams that have them too."""

    shape = Shape.RESPONSES

    def upstream_call(self, call: Call, route: Route) -> Call:
        body, adjusted = call.as_it_came or {}, tuple(UNSENT & call.sent)
        given = body.get("input")
        if isinstance(given, list) and any(map(_is_sealed, given)):
            body = {**body, "input": [item for item in given if not _is_sealed(item)]}
            adjusted = (*adjusted, "encrypted_content")
        return replace(call, body=body, adjusted=adjusted)

    def normaliser(
        self, *, id: str, created: int, model: str, choices: int, tool_names: Collection[str] = ()
    ) -> PassedResponse:
        return PassedResponse(id=id, model=model)

    def framing(self, normaliser: Any, call: Call) -> Framing:
        stream: PassedResponse = normaliser
        return stream

    def aggregate(self) -> LastResponse:
        return LastResponse()

    def normalised(self, answer: Mapping[str, Any], call: Call, *, id: str, created: int, model: str) -> Json:
        require_objects(answer, "output")
        return {**answer, **own_of(id, model)}

    def output_bytes(self, normalised: Mapping[str, Any]) -> int:
        return output_bytes(normalised)

    def answer(self, normalised: Json, call: Call, report: Report) -> Json:
        return with_bill(normalised, report)


def _is_sealed(item: Any) -> bool:
    """Tells whether an item is reasoning in an envelope of ours: it is another provider's."""
    return isinstance(item, dict) and item.get("type") == "reasoning" and is_envelope(item.get("encrypted_content"))


TRANSLATED, PASSED = ResponsesForm(), PassedForm()
