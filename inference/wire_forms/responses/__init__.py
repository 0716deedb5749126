"""Implements the stateless Responses API: `POST /v1/responses` on every route that chats (docs/api.md#responses).

A request becomes a chat (`requests`, `conversation`, `tools`), and its answer output items (`answers`, `output`). To an
upstream that has this API it is passed on (`passing`). Fields that need stored state are refused, with a message on how
to do without.
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
from ..base import Endpoint, WireForm, results_in_text
from ..framing import Framing, Report
from ..passing import require_objects
from ..signatures import is_envelope, restored_for_route
from .answers import ResponseFraming, response_of, with_bill
from .conversation import KEPT_NOWHERE
from .passing import LastResponse, PassedResponse, output_bytes, own_of
from .requests import CHAT_NAMES, UNSENT, call_of

# A path into the messages of a chat: the message's number, its call's number, and the path within.
IN_MESSAGES = re.compile(r"messages\[(\d+)\](?:\.tool_calls\[(\d+)\])?(.*)")
# Levels within a message that a chat has in addition.
NESTED = re.compile(r"(?<=\.image_url)\.url|\.(?:file|function)(?=\.)")


class ResponsesForm(WireForm):
    """Implements the wire form of Responses for upstreams that do not have this API, by chats."""

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
        messages, dropped = restored_for_route(call.body["messages"], route, "encrypted_content")
        if not DIALECTS[route.upstream.dialect].results_in_parts:
            messages, has_moved = results_in_text(messages)
            if has_moved:
                dropped["function_call_output"] = None
        body = {**call.body, "messages": messages}
        return replace(call, shape=Shape.CHAT, body=body, adjusted_fields=(*call.adjusted_fields, *dropped))

    def name_as_sent(self, path: str, call: Call) -> str:
        """See WireForm. A path into a message becomes one into its input item; other paths become the field's name."""
        if place := IN_MESSAGES.fullmatch(path):
            number, within = int(place[1]), NESTED.sub("", place[3])
            item = call.form_state.places[number][0 if place[2] is None else 1 + int(place[2])]
            if call.body["messages"][number]["role"] == "tool":
                within = within.replace(".content", ".output", 1)
            return "input" if item is None else f"input[{item}]{within}"
        name = path.partition(".")[0].partition("[")[0]
        if name == "logprobs" and "top_logprobs" not in (call.original_body or {}):
            return "include"
        if name in ("tools", "tool_choice"):
            return name if ".function" in path else path
        return CHAT_NAMES.get(name, path)

    def framing(self, normaliser: Any, call: Call) -> Framing:
        return ResponseFraming(normaliser.closing([]), call.form_state)

    def answer(self, normalised: dict[str, Any], call: Call, report: Report) -> dict[str, Any]:
        return response_of(normalised, call.form_state, report)


class PassedResponsesForm(ResponsesForm):
    """Implements the wire form of Responses for upstreams that have this API too."""

    shape = Shape.RESPONSES

    def upstream_call(self, call: Call, route: Route) -> Call:
        body, adjusted = call.original_body or {}, tuple(UNSENT & call.sent_fields)
        given = body.get("input")
        if isinstance(given, list) and any(map(_is_sealed, given)):
            body = {**body, "input": [item for item in given if not _is_sealed(item)]}
            adjusted = (*adjusted, "encrypted_content")
        return replace(call, body=body, adjusted_fields=adjusted)

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
    """Tells whether an item is reasoning in an envelope of ours, which another provider made."""
    return isinstance(item, dict) and item.get("type") == "reasoning" and is_envelope(item.get("encrypted_content"))


TRANSLATED, PASSED = ResponsesForm(), PassedResponsesForm()
