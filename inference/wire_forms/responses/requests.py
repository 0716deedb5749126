"""Checks requests of the Responses API and translates them into chats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from rest_framework import serializers

from gateway.edge.checks import Json, fault, require
from gateway.edge.strict_fields import (
    CheckedField,
    ChoiceField,
    FastSerializer,
    FlagField,
    ListField,
    NumberField,
    ObjectField,
    TextField,
    WholeNumberField,
)
from gateway.errors import InvalidRequest

from ...call import Call, Shape
from ...dialects.base import DroppedFields, encoded
from ..base import note_dropped_within
from ..gateway_field import GatewayField
from ..sampling import ModelField, effort_of
from .conversation import KEPT_NOWHERE, conversation_of
from .tools import Tool, choice_of, tools_of

MOST_REPEATED = 128 * 1024  # bytes of a field
LEAST_OUTPUT = 16  # tokens; OpenAI's limit
MOST_METADATA, LONGEST_NAME, LONGEST_VALUE = 16, 64, 512
LOGPROBS, ENCRYPTED = "message.output_text.logprobs", "reasoning.encrypted_content"
# Fields that a chat does not have: they are handled here, or are hints that are dropped.
NOT_OF_A_CHAT = frozenset(
    {"model", "input", "instructions", "max_output_tokens", "max_tool_calls", "tools", "tool_choice", "text"}
    | {"reasoning", "include", "metadata", "stream", "stream_options", "truncation", "store", "background"}
    | {"client_metadata", "prompt_cache_options", "top_logprobs", "usage", "gateway"}
)
# Fields that are not part of a body that is passed on: dialects write the first four themselves, and the others are
# not for upstreams.
NOT_PASSED_ON = frozenset({"model", "stream", "max_output_tokens", "store", "client_metadata", "usage", "gateway"})
# Hints, and a limit that is not enforced, which a chat does not have. An upstream with this API gets the first two.
UNSENT_IN_A_CHAT = ("prompt_cache_options", "max_tool_calls", "client_metadata")
UNSENT = frozenset({"client_metadata"})
# The names that fields of a chat have in this API.
CHAT_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
    "reasoning_effort": "reasoning.effort",
    "logprobs": "top_logprobs",
    "functions": "tools",
    "function_call": "tool_choice",
}
# The members of these fields that are translated.
HANDLED_MEMBERS = {"text": ("format", "verbosity"), "reasoning": ("effort", "max_tokens")}
# Fields of a chat, which are refused because they would change the translated request.
OF_A_CHAT = (*CHAT_NAMES, "n", "modalities", "audio")


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """Holds what the answer needs of its request.

    `echo` are the fields that the answer repeats, as JSON. `tools` is `Tools.tool_by_function`. `encrypts` means that
    reasoning is returned encrypted. `places` is `Conversation.places`.
    """

    echo: Mapping[str, orjson.Fragment]
    tools: Mapping[str, Tool]
    encrypts: bool
    places: Sequence[tuple[int | None, ...]] = ()


class RefusedField(CheckedField):
    """Refuses a field unless it is false, with advice on how to do without it."""

    def __init__(self, advice: str) -> None:
        super().__init__(partial(_refused, advice), required=False)


def _refused(advice: str, data: Any) -> Any:
    if data is not False:
        raise fault("", advice)
    return data


def _include(data: Any) -> list[str]:
    """Checks the names of optional parts of the answer. Those about hosted tools have no effect."""
    names: list[str] = require(data, list, "", "an array")
    if not all(isinstance(name, str) for name in names):
        raise fault("", "must be an array of strings.")
    return names


def _metadata(data: Any) -> Json:
    """Checks the metadata: up to 16 pairs of strings, which are repeated in the answer and not sent upstream."""
    pairs: Json = require(data, dict, "", "an object")
    if len(pairs) <= MOST_METADATA and all(
        len(name) <= LONGEST_NAME and isinstance(value, str) and len(value) <= LONGEST_VALUE
        for name, value in pairs.items()
    ):
        return pairs
    sizes = f"{LONGEST_NAME} and {LONGEST_VALUE} characters"
    raise fault("", f"must be at most {MOST_METADATA} pairs of strings, of {sizes}.")


class ResponsesRequest(serializers.Serializer[Any]):
    """Names the fields that are checked, and those that are refused."""

    model = ModelField()
    instructions = TextField(required=False)
    max_output_tokens = WholeNumberField(minimum=LEAST_OUTPUT, required=False)
    max_tool_calls = WholeNumberField(minimum=1, required=False)
    temperature = NumberField(minimum=0, maximum=2, required=False)
    top_p = NumberField(minimum=0, maximum=1, required=False)
    presence_penalty = NumberField(minimum=-2, maximum=2, required=False)
    frequency_penalty = NumberField(minimum=-2, maximum=2, required=False)
    top_logprobs = WholeNumberField(minimum=0, maximum=20, required=False)
    parallel_tool_calls = FlagField(required=False)
    tools = ListField(required=False)
    text = ObjectField(required=False)
    reasoning = ObjectField(required=False)
    include = CheckedField(_include, required=False)
    metadata = CheckedField(_metadata, required=False)
    prompt_cache_key = TextField(required=False)
    safety_identifier = TextField(required=False)
    user = TextField(required=False)
    stream = FlagField(required=False)
    stream_options = ObjectField(required=False)
    truncation = ChoiceField(choices=("auto", "disabled"), required=False)
    store = RefusedField(f"must be false. {KEPT_NOWHERE}")
    gateway = GatewayField()
    background = RefusedField(f"must be false: an answer is only sent in reply to its request. {KEPT_NOWHERE}")
    previous_response_id = RefusedField(f"must be absent. {KEPT_NOWHERE}")
    conversation = RefusedField(f"must be absent. {KEPT_NOWHERE}")
    prompt = RefusedField("must be absent: prompts are not kept here. Send `instructions` and `input`.")
    context_management = RefusedField("must be absent: a context is not changed here. Send what the model is to see.")
    moderation = RefusedField("must be absent: it would be another service, at a price of its own.")


CHECKS = FastSerializer(ResponsesRequest(), "model", "input")


def call_of(body: dict[str, Any]) -> Call:
    """Checks a request and translates it into a call. Raises InvalidRequest and DRF's ValidationError."""
    # 1. Refuse fields of a chat, and check the others.
    for name in OF_A_CHAT:
        if body.get(name) is not None:
            own = f" Send `{CHAT_NAMES[name]}`." if name in CHAT_NAMES else ""
            raise InvalidRequest.of_field(name, f"must be absent: it is a field of chat completions.{own}")
    present, checked = CHECKS.checked(body)
    # 2. Translate the input and the tools.
    dropped = DroppedFields((name, None) for name in UNSENT_IN_A_CHAT if name in present)
    if present.get("truncation") == "auto":
        dropped["truncation"] = None
    tools = tools_of(checked.get("tools", []), present["input"], dropped)
    chat = {name: value for name, value in present.items() if name not in NOT_OF_A_CHAT}
    conversation = conversation_of(present["input"], checked.get("instructions"), dropped)
    chat["messages"] = conversation.messages
    functions = tools.functions
    if "tool_choice" in present:
        try:
            choice, functions = choice_of(present["tool_choice"], tools)
        except InvalidRequest as error:
            raise error.within("tool_choice") from None
        if functions or choice == "required":
            chat["tool_choice"] = choice
    if functions:
        chat["tools"] = functions
    else:
        chat.pop("parallel_tool_calls", None)
    # 3. Translate the other fields.
    for name, handled in HANDLED_MEMBERS.items():
        note_dropped_within(name, checked.get(name, {}), handled, dropped)
    chat |= _format(checked.get("text", {}), dropped) | _effort(checked.get("reasoning", {}), dropped)
    include = checked.get("include", ())
    if LOGPROBS in include or checked.get("top_logprobs"):
        chat |= {"logprobs": True, "top_logprobs": checked.get("top_logprobs", 0)}
    return Call(
        shape=Shape.RESPONSES,
        model=checked["model"],
        body=chat,
        stream=checked.get("stream", False),
        max_tokens=checked.get("max_output_tokens"),
        max_cost=checked.get("gateway"),
        sent_fields=frozenset((*present, *chat, *(("max_tokens",) if "max_output_tokens" in present else ()))),
        adjusted_fields=tuple(dropped),
        original_body={name: value for name, value in present.items() if name not in NOT_PASSED_ON},
        form_state=AnswerContext(_echo(present), tools.tool_by_function, ENCRYPTED in include, conversation.places),
    )


def _format(text: Json, dropped: DroppedFields) -> Json:
    """Translates `text` into a chat's `response_format` and `verbosity`."""
    form, words = text.get("format"), {}
    if text.get("verbosity") is not None:
        words["verbosity"] = text["verbosity"]
    if form is None:
        return words
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "json_schema":
        if not isinstance(form.get("name"), str):
            raise InvalidRequest.of_field("text.format.name", "must be a string.")
        if not isinstance(form.get("schema"), dict):
            raise InvalidRequest.of_field("text.format.schema", "must be an object, a JSON Schema.")
        named = {name: value for name, value in form.items() if name != "type" and value is not None}
        return {**words, "response_format": {"type": kind, "json_schema": named}}
    if kind not in ("text", "json_object"):
        raise InvalidRequest.of_field("text.format.type", "must be one of text, json_object, json_schema.")
    note_dropped_within("text.format", form, ("type",), dropped)
    return words if kind == "text" else {**words, "response_format": {"type": kind}}


def _effort(reasoning: Json, dropped: DroppedFields) -> Json:
    effort, budget = reasoning.get("effort"), reasoning.get("max_tokens")
    if budget is not None and (effort is not None or type(budget) is not int):
        dropped["reasoning.max_tokens"] = None
    if effort is None:
        return {"reasoning_effort": effort_of(budget)} if type(budget) is int else {}
    if not isinstance(effort, str):
        raise InvalidRequest.of_field("reasoning.effort", "must be a string.")
    return {"reasoning_effort": effort}


def _echo(present: Json) -> dict[str, orjson.Fragment]:
    """Returns the fields of the request that the response repeats, all of which clients require.

    A long one is repeated as if it were absent, since a stream would keep it in memory to its end.
    """
    written = {name: encoded(value) for name, value in _repeated(present).items()}
    return {
        name: orjson.Fragment(value if len(value) <= MOST_REPEATED else NOT_SENT[name])
        for name, value in written.items()
        if len(value) <= MOST_REPEATED or name in NOT_SENT
    }


def _repeated(present: Json) -> Json:
    text = present.get("text", {})
    return {
        "background": False,
        "instructions": present.get("instructions"),
        "max_output_tokens": present.get("max_output_tokens"),
        "max_tool_calls": present.get("max_tool_calls"),
        "parallel_tool_calls": present.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None, **present.get("reasoning", {})},
        "store": False,
        "temperature": present.get("temperature", 1.0),
        "top_p": present.get("top_p", 1.0),
        "presence_penalty": present.get("presence_penalty", 0.0),
        "frequency_penalty": present.get("frequency_penalty", 0.0),
        "top_logprobs": present.get("top_logprobs", 0),
        "text": {**text, "format": _whole_format(text.get("format") or {"type": "text"})},
        "tool_choice": present.get("tool_choice", "auto"),
        "tools": [_whole_tool(tool) for tool in present.get("tools", ())],
        "truncation": "disabled",
        "service_tier": present.get("service_tier", "default"),
        "metadata": present.get("metadata", {}),
        "safety_identifier": present.get("safety_identifier"),
        "prompt_cache_key": present.get("prompt_cache_key"),
        **{name: present[name] for name in ("user",) if name in present},
    }


def _whole_format(form: Json) -> Json:
    if form.get("type") != "json_schema":
        return form
    return {"strict": None, **{name: value for name, value in form.items() if name != "description" or value}}


def _whole_tool(tool: Json) -> Json:
    if tool["type"] != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None, **tool}


NOT_SENT = {name: orjson.dumps(value) for name, value in _repeated({}).items()}
