"""Wire forms: their interface, and the parts that those of OpenAI's completions share.

A wire form is one API that clients speak: its request is turned into a `Call`, and the normalised answer into its own
words, whole or piece by piece, whatever ends it. Admission, dialects, settlement and records know a form by its
interface alone. A new one is a module here, a line in `WIRE_FORMS`, and a value of `Generation.Endpoint`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import orjson
from rest_framework import serializers

from accounts.keys import bearer_token
from billing.models import Generation
from catalogue.models import Modality
from catalogue.routing.routes import Route
from gateway.edge.checks import (
    Json,
    fault,
    optional,
    require,
)
from gateway.edge.exception_handler import envelope, plain
from gateway.edge.responses import PlainResponse
from gateway.edge.serializers import (
    CheckedField,
    FlagField,
    NumberField,
    ObjectField,
    TextField,
    WholeNumberField,
)
from gateway.errors import ApiError, InvalidRequest, UpstreamRefused
from gateway.ids import GENERATION_PREFIX

from ..answers import Aggregate, WholeFromDeltas, chat_answer, chat_output_bytes
from ..authentication import Payer, authenticate
from ..call import Call, Shape
from ..chunks import ChatNormaliser, ChunkNormaliser, Normaliser
from ..deltas import Delta, Finish
from ..dialects.base import Untold
from ..words import THOUGHTS, without

Endpoint = Generation.Endpoint
Report = Mapping[str, Any]  # `usage` and `gateway_metadata` of a settled answer
# The gateway's own fields: a dialect writes its form of them. The last three are those of other routers: `usage` is in
# every answer, asked for or not.
OWNED = frozenset(
    {"model", "stream", "stream_options", "max_tokens", "max_completion_tokens"}
    | {"usage", "reasoning", "include_reasoning"}
)
# The effort that a budget of at least this number of tokens of reasoning asks for.
EFFORT_FROM = ((16_384, "high"), (4_096, "medium"))
LEAST_EFFORT, USUAL_EFFORT, NO_EFFORT = "low", "medium", "none"
NO_FILES = "must be absent: files are not kept here. Send the content itself, as a data URL."
REASONING: Mapping[str, type] = {"effort": str, "max_tokens": int, "enabled": bool, "exclude": bool}
DONE = b"data: [DONE]\n\n"
# Line ends by Unicode's rules (U+0085, U+2028, U+2029) that JSON allows in a string.
LINE_ENDS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
HIDES_REASONING = "hides reasoning"  # `Call.asked` of a completion whose client wants none in its answer


class Framing(Protocol):
    """One streamed answer in a form's words: each method returns bytes to send next, and may remember.

    One of the last three is called once, at the end, when the answer has been settled. `report` is None where settling
    itself has failed.
    """

    def frames(self, pending: list[Delta]) -> list[bytes]:
        """The deltas that have come from the upstream since the last time."""

    def finished(self, report: Report) -> list[bytes]:
        """The answer is complete."""

    def stalled(self, error: ApiError, report: Report) -> list[bytes]:
        """The upstream fell silent for longer than a budget allows; what was delivered is billed."""

    def broke(self, error: ApiError, report: Report | None) -> list[bytes]:
        """Anything else ended it before it was complete."""


class WireForm(ABC):
    """One inbound API. What is here serves a form of chats; one of another shape overrides it.

    A form has no state of its own: the one instance serves all requests.
    """

    path: ClassVar[str]  # below the API's prefix
    endpoint: ClassVar[Endpoint]  # what records call it
    shape: ClassVar[Shape] = Shape.CHAT  # of its calls upstream
    id_prefix: ClassVar[str] = GENERATION_PREFIX  # of its answers' ids
    count_path: ClassVar[str] = ""  # where a request is counted, if anywhere
    counts_upstream: ClassVar[bool] = False  # whether upstreams are asked that count
    tells_rate_limits: ClassVar[bool] = False  # whether a provider's 429 is one here too, not a 503
    has_old_calls: ClassVar[bool] = True  # whether an answer may have a `function_call` in the place of `tool_calls`
    is_asked_by_websocket: ClassVar[bool] = False  # whether its clients try one first
    nothing_below: ClassVar[str] = ""  # what a 404 says of paths below its own, where clients may look for something

    @abstractmethod
    def call(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        """A request, checked. Raises InvalidRequest and DRF's ValidationError."""

    def over(self, route: Route) -> "WireForm":
        """The form that serves its calls over this route: another where the upstream speaks it itself."""
        return self

    def upstream_call(self, call: Call, route: Route) -> Call:
        """The call in its `shape`, for this route. Raises InvalidRequest for what has no form there."""
        return call if "reasoning_effort" in call.sent else without_effort(call, route)

    def call_to_count(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        """A request that is only to be counted, checked. Raises as `call`."""
        return replace(self.call(body, environ), counts=True)

    def counted(self, prompt_tokens: int) -> dict[str, Any]:
        """The answer to a request that was only to be counted."""
        raise NotImplementedError

    def payer(self, environ: Mapping[str, Any]) -> Payer:
        """Who asks. Raises AuthenticationError."""
        return authenticate(bearer_token(environ.get("HTTP_AUTHORIZATION")), environ)

    def refusal(self, error: ApiError, environ: Mapping[str, Any]) -> PlainResponse:
        """An error in an answer's place."""
        return plain(error, environ)

    def name_as_sent(self, path: str, call: Call) -> str:
        """The client's name of a field of the call that its request was translated to."""
        return "reasoning" if path == "reasoning_effort" and path not in call.sent else path

    def normaliser(
        self, *, id: str, created: int, model: str, choices: int, tool_names: Collection[str] = ()
    ) -> Normaliser:
        """What makes the deltas of one stream the same from every upstream: the framing is fed with them. `tool_names`
        are those of the request's tools."""
        return ChatNormaliser(
            id=id,
            created=created,
            model=model,
            choices=choices,
            tool_names=tool_names,
            has_old_calls=self.has_old_calls,
        )

    def framing(self, normaliser: Any, call: Call) -> Framing:
        """The frames of one stream, of what its own normaliser makes."""
        return ChunkFraming(normaliser, call)

    def aggregate(self) -> WholeFromDeltas:
        """What puts an upstream's answer together where a whole one is streamed from it."""
        return Aggregate(self.shape)

    def normalised(self, answer: Mapping[str, Any], call: Call, *, id: str, created: int, model: str) -> dict[str, Any]:
        """An upstream's whole answer, in the shape of the call, the same from every upstream. Raises MalformedReply."""
        return chat_answer(answer, id=id, created=created, model=model, has_old_calls=self.has_old_calls)

    def output_bytes(self, normalised: Mapping[str, Any]) -> int:
        """UTF-8 bytes of the words in a normalised answer, for the estimator."""
        return chat_output_bytes(normalised)

    def answer(self, normalised: dict[str, Any], call: Call, report: Report) -> dict[str, Any]:
        """The whole answer as the client gets it."""
        if call.asked == HIDES_REASONING:
            normalised = {**normalised, "choices": [_unthought(choice) for choice in normalised["choices"]]}
        return {**normalised, **report}


def named_as_sent(error: ApiError, form: WireForm, call: Call | None) -> ApiError:
    """The error of a request. One of a call that it was translated to speaks of the field that the client sent."""
    if call is None or not isinstance(error, InvalidRequest) or not error.param:
        return error
    if isinstance(error, UpstreamRefused):  # the path within is of what went upstream
        name = error.param.partition(".")[0].partition("[")[0]
        own = form.name_as_sent(name, call)
        sent = error.param if own == name else own
    else:
        sent = form.name_as_sent(error.param, call)
    error.message, error.param = error.message.replace(f"`{error.param}`", f"`{sent}`"), sent
    return error


def framed(payload: Json, name: bytes = b"") -> bytes:
    """One event carrying one JSON object, with its name where events of the API have one."""
    data = orjson.dumps(payload)
    frame = b"event: %b\ndata: %b\n\n" % (name, data) if name else b"data: %b\n\n" % data
    return frame if frame.isascii() else without_line_ends(frame)


def without_line_ends(frames: bytes) -> bytes:
    """The same with no line end in its data by any rule that a client may split lines by."""
    for raw, escaped in LINE_ENDS:
        frames = frames.replace(raw, escaped)
    return frames


class ChunkFraming:
    """Chunk by chunk in `data:` lines, as chat and text completions stream.

    Usage rides on the finish chunk, or on a chunk of its own where the client asked for one.
    """

    __slots__ = ("_held", "_hides_reasoning", "_include_usage", "_normaliser")

    def __init__(self, normaliser: ChunkNormaliser, call: Call) -> None:
        self._normaliser, self._include_usage = normaliser, call.include_usage
        self._hides_reasoning = call.asked == HIDES_REASONING
        self._held: Json | None = None  # the last finish chunk, which may have to carry the usage

    def frames(self, pending: list[Delta]) -> list[bytes]:
        """See Framing."""
        if self._hides_reasoning:
            pending = _without_thoughts(pending)
        if len(pending) == 1 and pending[0].more is None and type(pending[0]) is not Finish:
            return [framed(pending[0].chunk)]
        chunks = []
        for delta in pending:
            chunks.append(delta.chunk)
            if delta.more is not None:
                chunks += delta.more
        if pending and isinstance(pending[-1], Finish):
            self._held = chunks.pop()
        frames = b"\n\ndata: ".join(map(orjson.dumps, chunks))  # nothing is done for each of them in Python
        if not frames.isascii():
            frames = without_line_ends(frames)
        return [b"data: %b\n\n" % frames] if frames else []

    def finished(self, report: Report) -> list[bytes]:
        """See Framing."""
        if self._held is not None and not self._include_usage:
            return [framed({**self._held, **self._normaliser.unsent, **report}), DONE]
        return [*self._released(), framed({**self._normaliser.closing([]), **report}), DONE]

    def stalled(self, error: ApiError, report: Report) -> list[bytes]:
        """See Framing."""
        return [*self._released(), framed({**self._normaliser.stalled(), **report}), DONE]

    def broke(self, error: ApiError, report: Report | None) -> list[bytes]:
        """See Framing."""
        return [*(self._released() if report is not None else ()), framed(envelope(error))]

    def _released(self) -> list[bytes]:
        """The held finish chunk, which turned out not to be the one that carries the usage."""
        held, self._held = self._held, None
        return [] if held is None else [framed(held)]


def _without_thoughts(pending: Iterable[Delta]) -> list[Delta]:
    """The deltas without reasoning; those that would say nothing are not sent."""
    kept = []
    for delta in pending:
        left = _unthought(delta.choice)
        if left == delta.choice or isinstance(delta, Finish) or left.get("delta") or left.get("text"):
            if left != delta.choice:
                delta.chunk["choices"], delta.more = [left], None
            kept.append(delta)
    return kept


def _unthought(choice: Mapping[str, Any]) -> dict[str, Any]:
    """A choice of an answer or a chunk without its reasoning."""
    said = {name: without(choice[name], THOUGHTS) for name in ("message", "delta") if name in choice}
    return {**without(choice, THOUGHTS), **said}


class ModelField(TextField):
    """The model. Its form is checked when it is resolved."""


def _stop(data: Any) -> Any:
    if isinstance(data, str) or (isinstance(data, list) and all(isinstance(item, str) for item in data)):
        return data
    raise fault("", "must be a string or an array of strings.")


def _stream_options(data: Any) -> Json:
    optional(require(data, dict, "", "an object"), "include_usage", bool, "a boolean")
    options: Json = data
    return options


class SamplingRequest(serializers.Serializer[Any]):
    """The fields that chat and text completions share."""

    model = ModelField()
    temperature = NumberField(minimum=0, maximum=2, required=False)
    top_p = NumberField(minimum=0, maximum=1, required=False)
    n = WholeNumberField(minimum=1, required=False)
    stream = FlagField(required=False)
    stream_options = CheckedField(_stream_options, required=False)
    stop = CheckedField(_stop, required=False)
    max_tokens = WholeNumberField(minimum=1, required=False)
    max_completion_tokens = WholeNumberField(minimum=1, required=False)
    presence_penalty = NumberField(minimum=-2, maximum=2, required=False)
    frequency_penalty = NumberField(minimum=-2, maximum=2, required=False)
    user = TextField(required=False)
    usage = ObjectField(required=False)
    reasoning = ObjectField(REASONING, required=False)
    include_reasoning = FlagField(required=False)


def sampling_call(
    shape: Shape, checked: dict[str, Any], *, sent: frozenset[str], body: dict[str, Any], default_cap: int | None
) -> Call:
    """A call of a SamplingRequest. Either field caps the answer; `max_completion_tokens` wins.

    `reasoning` becomes an effort, unless the client names one as OpenAI does.
    """
    reasoning = checked.get("reasoning", {})
    effort = _effort(reasoning)
    if effort is not None:
        body.setdefault("reasoning_effort", effort)
    hides = reasoning.get("exclude") is True or checked.get("include_reasoning") is False
    return Call(
        shape=shape,
        model=checked["model"],
        body=body,
        stream=checked.get("stream", False),
        include_usage=bool(checked.get("stream_options", {}).get("include_usage")),
        max_tokens=checked.get("max_completion_tokens", checked.get("max_tokens", default_cap)),
        choices=checked.get("n", 1),
        sent=sent,
        adjusted=tuple(f"reasoning.{name}" for name in reasoning if name not in REASONING),
        asked=HIDES_REASONING if hides else None,
    )


def results_in_text(messages: list[Json]) -> tuple[list[Json], bool]:
    """A chat whose tool messages are text, as providers take them, and whether anything had to move for that.

    Pictures and files follow the results in the next message of the user, each by a number that stands in its place.
    """
    in_text: list[Json] = []
    moved: list[Json] = []
    count = 0
    for each in messages:
        message, content = each, each.get("content")
        if message["role"] == "tool" and isinstance(content, list):
            texts = []
            for part in content:
                if part["type"] != "text":
                    count += 1
                    moved += [{"type": "text", "text": f"Attachment {count}:"}, part]
                texts.append(part["text"] if part["type"] == "text" else f"[Attachment {count} is in the next message]")
            in_text.append({**message, "content": "\n".join(texts)})
            continue
        if moved and message["role"] != "tool":
            if message["role"] == "user":
                said = content if isinstance(content, list) else [{"type": "text", "text": content}]
                message = {**message, "content": [*moved, *said]}
            else:
                in_text.append({"role": "user", "content": moved})
            moved = []
        in_text.append(message)
    if moved:
        in_text.append({"role": "user", "content": moved})
    return in_text, count > 0


def _effort(reasoning: Mapping[str, Any]) -> str | None:
    """How hard a request wants its model to think, if it says so."""
    if reasoning.get("effort") is not None:
        return str(reasoning["effort"])
    if reasoning.get("max_tokens") is not None:
        return effort_of(reasoning["max_tokens"])
    return {True: USUAL_EFFORT, False: NO_EFFORT, None: None}[reasoning.get("enabled")]


def effort_of(budget: int) -> str:
    """Returns the effort that stands for a budget in tokens."""
    return next((word for least, word in EFFORT_FROM if budget >= least), LEAST_EFFORT)


def note_within(name: str, value: Mapping[str, Any], told: Collection[str], untold: Untold) -> None:
    """Takes in the members of a field at the top level that the upstream is not told, by their paths."""
    inner = Untold()
    inner.beyond(value, told)
    untold.update({f"{name}.{each}": None for each in inner})


def without_effort(call: Call, route: Route) -> Call:
    """The chat without an effort that the route does not take, as models that do not reason."""
    if "reasoning_effort" not in call.body:
        return call
    if "reasoning_effort" not in route.upstream.refused_parameters and route.modality != Modality.COMPLETION:
        return call
    return replace(call, body=without(call.body, {"reasoning_effort"}), adjusted=(*call.adjusted, "reasoning_effort"))


def pass_through(present: dict[str, Any]) -> dict[str, Any]:
    """What goes upstream as it came."""
    return without(present, OWNED)
