"""The interface of wire forms.

A wire form is one API that clients speak. It turns a request into a `Call`, and the normalised answer into its own
words, whole or streamed, whatever ends it. Admission, dialects, settlement and records use this interface alone. A new
form is a module in this folder, a line in `WIRE_FORMS`, and a value of `Generation.Endpoint`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from accounts.keys import bearer_token
from billing.models import Generation
from catalogue.models import Modality
from catalogue.routing.routes import Route
from gateway.edge.checks import Json
from gateway.edge.exception_handler import plain
from gateway.edge.responses import PlainResponse
from gateway.errors import ApiError, InvalidRequest, UpstreamRejected
from gateway.ids import GENERATION_PREFIX

from ..answers import Aggregate, WholeFromDeltas, chat_answer, chat_output_bytes
from ..authentication import Payer, authenticate
from ..call import Call, Shape
from ..chunks import ChatNormaliser, Normaliser
from ..dialects.base import DroppedFields
from ..words import without
from .framing import HIDES_REASONING, ChunkFraming, Framing, Report, without_reasoning

Endpoint = Generation.Endpoint
NO_FILES = "must be absent: files are not kept here. Send the content itself, as a data URL."


class WireForm(ABC):
    """Serves one inbound API. The defaults suit a form of chats; a form of another shape overrides them.

    A form has no state: one instance serves all requests.
    """

    path: ClassVar[str]  # below the API's prefix
    endpoint: ClassVar[Endpoint]  # its name in records
    shape: ClassVar[Shape] = Shape.CHAT  # the shape of its calls upstream
    id_prefix: ClassVar[str] = GENERATION_PREFIX  # the prefix of its answers' ids
    count_path: ClassVar[str] = ""  # the path that counts a request's tokens; empty if there is none
    counts_upstream: ClassVar[bool] = False  # whether upstreams that count are asked
    tells_rate_limits: ClassVar[bool] = False  # whether a provider's 429 stays a 429 instead of becoming a 503
    has_old_calls: ClassVar[bool] = True  # whether an answer may have a `function_call` instead of `tool_calls`
    is_asked_by_websocket: ClassVar[bool] = False  # whether clients try a WebSocket first
    nothing_below: ClassVar[str] = ""  # the message of a 404 for a path below its own, if clients try those

    @abstractmethod
    def call(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        """Checks a request and makes its call. Raises InvalidRequest and DRF's ValidationError."""

    def over(self, route: Route) -> "WireForm":
        """Returns the form that serves calls over this route: another one if the upstream speaks the form itself."""
        return self

    def upstream_call(self, call: Call, route: Route) -> Call:
        """Translates the call to `shape`, for this route. Raises InvalidRequest for what has no equivalent there."""
        return call if "reasoning_effort" in call.sent_fields else without_effort(call, route)

    def call_to_count(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        """Checks a request whose tokens are only to be counted. Raises the same errors as `call`."""
        return replace(self.call(body, environ), is_count=True)

    def counted(self, prompt_tokens: int) -> dict[str, Any]:
        """Makes the answer to a request whose tokens were only to be counted."""
        raise NotImplementedError

    def payer(self, environ: Mapping[str, Any]) -> Payer:
        """Authenticates a request, by its headers alone. Raises AuthenticationError."""
        return authenticate(bearer_token(environ.get("HTTP_AUTHORIZATION")), environ)

    def error_response(self, error: ApiError, environ: Mapping[str, Any]) -> PlainResponse:
        """Writes an error in the form's envelope."""
        return plain(error, environ)

    def name_as_sent(self, path: str, call: Call) -> str:
        """Returns the client's name for a field of the call that its request was translated to."""
        return "reasoning" if path == "reasoning_effort" and path not in call.sent_fields else path

    def normaliser(
        self, *, id: str, created: int, model: str, choices: int, tool_names: Collection[str] = ()
    ) -> Normaliser:
        """Makes the object that makes the deltas of one stream the same from every upstream, for the framing.

        `tool_names` are the names of the request's tools.
        """
        return ChatNormaliser(
            id=id,
            created=created,
            model=model,
            choices=choices,
            tool_names=tool_names,
            has_old_calls=self.has_old_calls,
        )

    def framing(self, normaliser: Any, call: Call) -> Framing:
        """Makes the framing of one stream, which writes what `normaliser` makes."""
        return ChunkFraming(normaliser, call)

    def aggregate(self) -> WholeFromDeltas:
        """Makes the object that puts a whole answer together from an upstream's stream."""
        return Aggregate(self.shape)

    def normalised(self, answer: Mapping[str, Any], call: Call, *, id: str, created: int, model: str) -> dict[str, Any]:
        """Makes an upstream's whole answer the same from every upstream, in the call's shape. Raises MalformedReply."""
        return chat_answer(answer, id=id, created=created, model=model, has_old_calls=self.has_old_calls)

    def output_bytes(self, normalised: Mapping[str, Any]) -> int:
        """Returns the length of the words in a normalised answer, in bytes of UTF-8, for the estimator."""
        return chat_output_bytes(normalised)

    def answer(self, normalised: dict[str, Any], call: Call, report: Report) -> dict[str, Any]:
        """Makes the whole answer that the client gets."""
        if call.form_state == HIDES_REASONING:
            normalised = {**normalised, "choices": [without_reasoning(choice) for choice in normalised["choices"]]}
        return {**normalised, **report}


def named_as_sent(error: ApiError, form: WireForm, call: Call | None) -> ApiError:
    """Changes an error about a field of the translated call so that it names the field that the client sent."""
    if call is None or not isinstance(error, InvalidRequest) or not error.param:
        return error
    if isinstance(error, UpstreamRejected):  # its path is a path within what went upstream
        name = error.param.partition(".")[0].partition("[")[0]
        own = form.name_as_sent(name, call)
        sent = error.param if own == name else own
    else:
        sent = form.name_as_sent(error.param, call)
    error.message, error.param = error.message.replace(f"`{error.param}`", f"`{sent}`"), sent
    return error


def results_in_text(messages: list[Json]) -> tuple[list[Json], bool]:
    """Makes the tool messages of a chat texts, as most providers take them. Also tells whether anything had to move.

    Pictures and files move to the next message of the user. A number stands in the place of each.
    """
    in_text: list[Json] = []
    attachments: list[Json] = []
    count = 0
    for each in messages:
        message, content = each, each.get("content")
        if message["role"] == "tool" and isinstance(content, list):
            texts = []
            for part in content:
                if part["type"] != "text":
                    count += 1
                    attachments += [{"type": "text", "text": f"Attachment {count}:"}, part]
                texts.append(part["text"] if part["type"] == "text" else f"[Attachment {count} is in the next message]")
            in_text.append({**message, "content": "\n".join(texts)})
            continue
        if attachments and message["role"] != "tool":
            if message["role"] == "user":
                said = content if isinstance(content, list) else [{"type": "text", "text": content}]
                message = {**message, "content": [*attachments, *said]}
            else:
                in_text.append({"role": "user", "content": attachments})
            attachments = []
        in_text.append(message)
    if attachments:
        in_text.append({"role": "user", "content": attachments})
    return in_text, count > 0


def note_dropped_within(name: str, value: Mapping[str, Any], handled: Collection[str], dropped: DroppedFields) -> None:
    """Adds to `dropped` the paths of a field's members that are not sent upstream."""
    inner = DroppedFields()
    inner.add_unhandled(value, handled)
    dropped.update({f"{name}.{each}": None for each in inner})


def without_effort(call: Call, route: Route) -> Call:
    """Removes the effort from a chat if the route does not take one: its model does not reason."""
    if "reasoning_effort" not in call.body:
        return call
    if "reasoning_effort" not in route.upstream.refused_parameters and route.modality != Modality.COMPLETION:
        return call
    return replace(
        call, body=without(call.body, {"reasoning_effort"}), adjusted_fields=(*call.adjusted_fields, "reasoning_effort")
    )
