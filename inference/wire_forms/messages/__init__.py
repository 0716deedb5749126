"""Implements `POST /v1/messages`: Anthropic's Messages API, as Claude Code and Anthropic's SDKs use it.

A request is passed on to an upstream that speaks this API (`passing`), and becomes a chat for others (`requests`,
`answers`). Fields that would change price or place, or execute something, are always refused.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rest_framework import serializers

from accounts.keys import token_of
from catalogue.models import Thinking
from catalogue.routing.routes import Route
from gateway.edge.checks import each, fault, optional, require, text_in
from gateway.edge.responses import PlainResponse
from gateway.edge.strict_fields import (
    CheckedField,
    ChoiceField,
    FastSerializer,
    FlagField,
    NumberField,
    ObjectField,
    WholeNumberField,
)
from gateway.errors import ApiError
from gateway.ids import MESSAGE_PREFIX

from ...authentication import Payer, authenticate
from ...call import Call, Shape
from ...dialects import DIALECTS
from ...dialects.base import REFUSED_OF_MESSAGES, refuse_fields
from ...dialects.errors import CONTEXT_OVERFLOW
from ..base import NO_FILES, Endpoint, WireForm, without_effort
from ..framing import Framing, Report
from ..gateway_field import GatewayField
from ..sampling import ModelField
from ..signatures import restored_for_route
from .answers import MessageFraming, message_of
from .passing import PassedMessage, WholeMessage, has_unsigned, passed_message, passed_output_bytes, passed_with, signed
from .requests import chat_of

Json = dict[str, Any]

ROLES = ("user", "assistant", "system")  # system messages within a conversation are a beta of the API
MOST_MESSAGES = 100_000
MOST_TOOLS = 10_000
NOT_PASSED_ON = frozenset({"model", "stream", "max_tokens", "usage", "gateway"})
# The names that fields of a chat have in this API.
CHAT_NAMES = {"stop": "stop_sequences", "response_format": "output_config.format", "parallel_tool_calls": "tool_choice"}
# Tools that the client runs itself. All others are run by the provider, at prices of their own.
OF_THE_CLIENT = re.compile(r"custom|(?:bash|text_editor|memory)_\d{8}")
# Betas that change only the wire format. Others change prices (a longer context, a faster answer), or store or execute
# something.
ALLOWED_BETA = re.compile(
    r"(?:adaptive-thinking|claude-code|context-management|effort|extended-cache-ttl|fine-grained-tool-streaming"
    r"|interleaved-thinking|mid-conversation-system|output-128k|prompt-caching|redact-thinking|structured-outputs"
    r"|thinking-token-count|token-efficient-tools|tool-examples)-[a-z0-9-]*\d{4}-?\d{2}-?\d{2}"
)
BETA = re.compile(r"[A-Za-z0-9._-]{1,64}")
VERSION = re.compile(r"\d{4}-\d\d-\d\d")
OVERFLOW = re.compile(r"prompt is too long|input length and `max_tokens` exceed context limit", re.IGNORECASE)
# The messages of OpenAI and vLLM for a prompt that leaves too little room for the answer: limit, prompt, answer.
NO_ROOM = re.compile(
    r"maximum context length is (?P<limit>\d+) tokens.*?(?:"
    r"\((?P<input>\d+) in the messages,[^)]*?(?P<output>\d+) in the completion\)"
    r"|request has (?P<has>\d+) input tokens \((?P<asks>\d+) > )",
    re.DOTALL,
)
NUMBER = re.compile(r"\d{3,}")


class ItemsField(CheckedField):
    """Checks an array, and each of its items with a function."""

    def __init__(self, check: Callable[[Any], Any], *, most: int, least: int = 0, **options: Any) -> None:
        super().__init__(partial(_items, check, most, least), **options)


def _items(check: Callable[[Any], Any], most: int, least: int, data: Any) -> list[Any]:
    if not isinstance(data, list) or not least <= len(data) <= most:
        raise fault("", f"must be an array of {'at least one item' if least else f'at most {most} items'}.")
    return each(data, check)


def _message(value: Any) -> Json:
    message: Json = require(value, dict, "", "an object")
    if message.get("role") not in ROLES:
        raise fault(".role", f"must be one of {', '.join(ROLES)}.")
    content = message.get("content")
    if not isinstance(content, str):
        each(require(content, list, ".content", "a string or an array of content blocks"), _block, ".content")
    return message


def _block(block: Any) -> None:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise fault("", "must be an object with a type.")
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "file":
        raise fault(".source.file_id", NO_FILES)


def _tool(value: Any) -> Json:
    tool: Json = require(value, dict, "", "an object")
    kind = tool.get("type") or "custom"
    if not isinstance(kind, str) or OF_THE_CLIENT.fullmatch(kind) is None:
        raise fault(".type", "must be a tool that you run: others change price and place.")
    text_in(tool, "name")
    if kind == "custom":
        require(tool.get("input_schema"), dict, ".input_schema", "an object")
    return tool


def _tool_choice(data: Any) -> Json:
    """Checks a tool choice: `{type: auto | any | none}`, or `{type: tool, name}`."""
    choice: Json = require(data, dict, "", "an object")
    optional(choice, "disable_parallel_tool_use", bool, "of the type bool")
    if choice.get("type") not in ("auto", "any", "tool", "none"):
        raise fault(".type", "must be one of auto, any, tool, none.")
    if choice["type"] == "tool":
        text_in(choice, "name")
    return choice


def _system(data: Any) -> Any:
    if isinstance(data, str):
        return data
    return each(require(data, list, "", "a string or an array of text blocks"), _text_block)


def _text_block(block: Any) -> Any:
    if not isinstance(block, dict) or not isinstance(block.get("text"), str):
        raise fault("", "must be a block of text.")
    return block


def _context_management(data: Any) -> Json:
    """Checks which parts of the prompt the provider is to drop. To summarise them would be billed as a request."""
    management: Json = require(data, dict, "", "an object")
    edits = management.get("edits")
    for position, edit in enumerate(edits if isinstance(edits, list) else ()):
        if isinstance(edit, dict) and str(edit.get("type")).startswith("compact"):
            raise fault(
                f".edits[{position}].type", "must not compact: that is a request of its own, with its own price."
            )
    return management


def _text(value: Any) -> Any:
    return require(value, str, "", "a string")


class CountTokensRequest(serializers.Serializer[Any]):
    """Names the fields of `POST /v1/messages/count_tokens`."""

    model = ModelField()
    messages = ItemsField(_message, least=1, most=MOST_MESSAGES)
    system = CheckedField(_system, required=False)
    tools = ItemsField(_tool, most=MOST_TOOLS, required=False)
    tool_choice = CheckedField(_tool_choice, required=False)
    thinking = ObjectField({"type": str, "budget_tokens": int}, required=False)
    output_config = ObjectField({"effort": str, "format": dict}, required=False)
    context_management = CheckedField(_context_management, required=False)
    speed = ChoiceField(("standard",), required=False)  # others have other prices
    gateway = GatewayField()


class MessagesRequest(CountTokensRequest):
    """Names the fields of `POST /v1/messages`."""

    max_tokens = WholeNumberField(minimum=1)
    stream = FlagField(required=False)
    stop_sequences = ItemsField(_text, most=MOST_TOOLS, required=False)
    temperature = NumberField(minimum=0, maximum=1, required=False)
    top_p = NumberField(minimum=0, maximum=1, required=False)
    metadata = ObjectField({"user_id": str}, required=False)
    service_tier = ChoiceField(("auto", "standard_only"), required=False)


CHECKS = FastSerializer(MessagesRequest(), "model", "messages", "max_tokens")
CHECKS_OF_COUNT = FastSerializer(CountTokensRequest(), "model", "messages")


class MessagesForm(WireForm):
    """Implements the wire form of Messages for upstreams that do not speak it, by chats."""

    path, endpoint, id_prefix = "messages", Endpoint.MESSAGES, MESSAGE_PREFIX
    count_path, counts_upstream = "messages/count_tokens", True
    tells_rate_limits = True
    has_old_calls = False

    def call(self, body: Json, environ: Mapping[str, Any]) -> Call:
        return self._checked(body, environ, CHECKS)

    def call_to_count(self, body: Json, environ: Mapping[str, Any]) -> Call:
        return replace(self._checked(body, environ, CHECKS_OF_COUNT), is_count=True)

    def counted(self, prompt_tokens: int) -> Json:
        return {"input_tokens": prompt_tokens}

    def _checked(self, body: Json, environ: Mapping[str, Any], checks: FastSerializer) -> Call:
        present, checked = checks.checked(body)
        refuse_fields(present, REFUSED_OF_MESSAGES)
        headers, stripped = _headers(environ)
        return Call(
            shape=Shape.MESSAGES,
            model=checked["model"],
            body={name: value for name, value in present.items() if name not in NOT_PASSED_ON},
            stream=checked.get("stream", False),
            max_tokens=checked.get("max_tokens"),
            max_cost=checked.get("gateway"),
            sent_fields=frozenset(present),
            adjusted_fields=stripped,
            headers=headers,
        )

    def over(self, route: Route) -> WireForm:
        return PASSED if DIALECTS[route.upstream.dialect].own_shape == Shape.MESSAGES else TRANSLATED

    def upstream_call(self, call: Call, route: Route) -> Call:
        """Turns the call into a chat. Agents ask every model to think, so an effort that a model lacks is dropped."""
        body, dropped = chat_of(call.body, takes_none=route.thinking == Thinking.EFFORT)
        body["messages"], dropped_there = restored_for_route(body["messages"], route, "signature")
        adjusted = (*call.adjusted_fields, *dropped, *dropped_there)
        chat = replace(call, shape=Shape.CHAT, body=body, adjusted_fields=adjusted, headers={})
        return without_effort(chat, route)

    def name_as_sent(self, path: str, call: Call) -> str:
        if path == "reasoning_effort":
            return "thinking" if "thinking" in call.sent_fields else "output_config.effort"
        return CHAT_NAMES.get(path, path)

    def payer(self, environ: Mapping[str, Any]) -> Payer:
        return authenticate(token_of(environ), environ)

    def error_response(self, error: ApiError, environ: Mapping[str, Any]) -> PlainResponse:
        """See WireForm. The message for a prompt that is too long is one that agents recognise, to shorten it."""
        if error.code == CONTEXT_OVERFLOW:
            error.message = overflow(error.message)
        return super().error_response(error, environ)

    def framing(self, normaliser: Any, call: Call) -> Framing:
        return MessageFraming(normaliser, call)

    def answer(self, normalised: Json, call: Call, report: Report) -> Json:
        return message_of(normalised, report)


class PassedMessagesForm(MessagesForm):
    """Implements the wire form of Messages for upstreams that speak it too."""

    shape = Shape.MESSAGES

    def upstream_call(self, call: Call, route: Route) -> Call:
        return replace(call, body=signed(call.body)) if has_unsigned(call.body) else call

    def normaliser(
        self, *, id: str, created: int, model: str, choices: int, tool_names: Collection[str] = ()
    ) -> PassedMessage:
        return PassedMessage(id=id, model=model)

    def framing(self, normaliser: Any, call: Call) -> Framing:
        stream: PassedMessage = normaliser
        return stream.framing(call)

    def aggregate(self) -> WholeMessage:
        return WholeMessage()

    def normalised(self, answer: Mapping[str, Any], call: Call, *, id: str, created: int, model: str) -> Json:
        return passed_message(answer, id=id, model=model)

    def output_bytes(self, normalised: Mapping[str, Any]) -> int:
        return passed_output_bytes(normalised)

    def answer(self, normalised: Json, call: Call, report: Report) -> Json:
        return passed_with(normalised, report)


TRANSLATED, PASSED = MessagesForm(), PassedMessagesForm()


def _headers(environ: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Returns the headers for an upstream that speaks this API, and the names of the betas that are not sent."""
    headers, stripped = {}, []
    version = environ.get("HTTP_ANTHROPIC_VERSION", "")
    if VERSION.fullmatch(version):
        headers["anthropic-version"] = version
    betas = list(filter(None, map(str.strip, environ.get("HTTP_ANTHROPIC_BETA", "").split(","))))
    allowed = [beta for beta in betas if ALLOWED_BETA.fullmatch(beta)]
    if allowed:
        headers["anthropic-beta"] = ",".join(allowed)
    stripped = [f"anthropic-beta:{beta}" for beta in betas if beta not in allowed and BETA.fullmatch(beta)]
    return headers, tuple(stripped)


def overflow(words: str) -> str:
    """Returns a message that begins with the words by which agents recognise a prompt that is too long.

    The words and token counts come from the upstream's message if it has them.
    """
    if said := OVERFLOW.search(words):
        return f"{words[said.start() :].rstrip('.')} ({words[: said.start()].rstrip(': ')})" if said.start() else words
    if room := NO_ROOM.search(words):
        prompt, asked = room["input"] or room["has"], room["output"] or room["asks"]
        return f"input length and `max_tokens` exceed context limit: {prompt} + {asked} > {room['limit']}. {words}"
    numbers = sorted({int(number) for number in NUMBER.findall(words)})
    if len(numbers) < 2:
        return f"prompt is too long. {words}"
    return f"prompt is too long: {numbers[-1]} tokens > {numbers[-2]} maximum. {words}"
