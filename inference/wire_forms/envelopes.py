"""Envelopes: what a provider signed or encrypted for the next turn, in a text that clients keep and send back unread.

Gemini signs its tool calls (`extra_content`) and refuses the next turn without the signature; OpenRouter encrypts
reasoning (`reasoning_details`). A chat has places for these. Responses have the `encrypted_content` of a reasoning
item. Messages have the id of a call: Claude Code drops the `signature` of thinking if the answer's model is not called
as it asked for it, which goes for every alias; the signature has what comes without a call, or behind it.

An envelope has all that was signed until then: the last one of an answer counts. It names its provider, and no other
gets what is in it.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from catalogue.routing.routes import Route

from ..answers import merged, whole
from ..dialects.base import Untold, is_shallow
from ..words import dicts, object_of, text_of, without

Json = dict[str, Any]

PREFIX = "gw1."
# An id with an envelope, in the letters that Anthropic's API takes in one.
SIGNED_ID = re.compile(r"(?P<id>.+?)_gw1_(?P<envelope>[A-Za-z0-9_-]+)", re.DOTALL)
TO_ID, FROM_ID = str.maketrans("+/", "-_", "="), str.maketrans("-_", "+/")
LISTS = ("reasoning_details", "thinking_blocks")
OF_A_MESSAGE = (*LISTS, "extra_content")
OF_A_CALL = ("extra_content", "provider_specific_fields")  # Google's own endpoint, and LiteLLM in front of it
ENVELOPES = "envelopes"  # those of a message, until its route is known
# Gemini from 3 on refuses an unsigned call, but takes this in a signature's place: ai.google.dev, Thought signatures.
DEMANDS_SIGNATURES = re.compile(r"(?:^|/)gemini-(?:[3-9]|\d\d)")
NOT_SIGNED: Json = {"google": {"thought_signature": "skip_thought_signature_validator"}}


class Signatures:
    """Collects what the provider of an answer signs. `model` is the answer's."""

    def __init__(self, model: str, names: Iterable[str] = OF_A_MESSAGE) -> None:
        self._provider = model.partition("/")[0]
        self._lists = [name for name in LISTS if name in names]
        self._members: Json = {}
        self._calls: Json = {}  # what was said beside each call, by its id
        self._ids: dict[Any, str] = {}  # of calls, by their index
        self._is_signed = False  # reasoning alone is not: it has its own place
        self.is_pending = False  # something came that no envelope has

    def take(self, said: Mapping[str, Any]) -> None:
        """Takes in the members of a message, or of a delta."""
        for name in self._lists:
            if items := dicts(said.get(name)):
                self._members = merged(self._members, {name: items})
                self._is_signed = self._is_signed or any(item.get("data") or item.get("signature") for item in items)
                self.is_pending = self._is_signed
        for vendor, extra in object_of(said.get("extra_content")).items():
            # `thought` is about the piece of text that it came with.
            if kept := without(object_of(extra), ("thought",)):
                self._members = merged(self._members, {"extra_content": {vendor: kept}})
                self._is_signed = self.is_pending = True

    def take_call(self, fragment: Mapping[str, Any]) -> None:
        """Takes in a tool call, or a piece of one."""
        if len(fragment) == 2:  # an index and more arguments
            return
        index = fragment.get("index")
        if identity := text_of(fragment.get("id")):
            self._ids[index] = identity
        kept = {name: fragment[name] for name in OF_A_CALL if object_of(fragment.get(name))}
        if kept and index in self._ids:
            self._calls = merged(self._calls, {self._ids[index]: kept})
            self._is_signed = self.is_pending = True

    def sealed(self, *, repeats: bool = False) -> str:
        """An envelope with all that was signed so far; an empty text if another has it all, unless that `repeats`."""
        if not (self.is_pending or (repeats and self._is_signed)):
            return ""
        self.is_pending = False
        calls = {"calls": self._calls} if self._calls else {}
        return sealed(whole({"provider": self._provider, **self._members, **calls}))


def sealed(content: Any) -> str:
    """An envelope with this in it."""
    return PREFIX + base64.b64encode(orjson.dumps(content)).decode()


def signed_id(identity: str, envelope: str) -> str:
    """The id of a call with an envelope in it, if there is any."""
    return f"{identity}_gw1_{envelope.removeprefix(PREFIX).translate(TO_ID)}" if envelope else identity


def parts_of_id(identity: str) -> tuple[str, str]:
    """Returns the id of a call as its provider gave it, and the envelope in it, which is empty for most calls."""
    if (found := SIGNED_ID.fullmatch(identity)) is None:
        return identity, ""
    text = found["envelope"].translate(FROM_ID)
    return found["id"], f"{PREFIX}{text}{'=' * (-len(text) % 4)}"


def is_envelope(text: Any) -> bool:
    """Tells whether a signature is an envelope of ours, which means nothing to any provider."""
    return isinstance(text, str) and text.startswith(PREFIX)


def opened(text: Any) -> Any:
    """What is in an envelope: an object, or an array of signed thinking; None if it cannot be read."""
    if not is_envelope(text):
        return None
    try:
        data = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        content = orjson.loads(data) if is_shallow(data) else None
    except (binascii.Error, ValueError):
        return None
    if isinstance(content, list):
        return content if all(isinstance(block, dict) for block in content) else None
    return _checked(content) if isinstance(content, dict) else None


def _checked(content: Json) -> Json | None:
    """The object of an envelope, if it is as `Signatures.sealed` writes it: clients can write what they like."""
    lists = {name: content[name] for name in LISTS if name in content}
    calls = content.get("calls", {})
    is_ours = (
        isinstance(content.get("provider"), str)
        and all(isinstance(items, list) and all(map(_is_item, items)) for items in lists.values())
        and isinstance(content.get("extra_content", {}), dict)
        and isinstance(calls, dict)
        and all(isinstance(each, dict) and each.keys() <= set(OF_A_CALL) for each in calls.values())
    )
    return content if is_ours else None


def _is_item(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type", ""), str)


def for_route(messages: list[Json], route: Route, field: str) -> tuple[list[Json], Untold]:
    """A chat's messages with what is in their `ENVELOPES` back in its places, if it is of the route's provider, else
    without it; and what was left out or added. `field` is where clients have their envelopes."""
    untold = Untold()
    demands = DEMANDS_SIGNATURES.search(route.upstream_model) is not None
    restored = []
    for each in messages:
        message = each
        if ENVELOPES in message:
            *_, last = message[ENVELOPES]
            message = without(message, (ENVELOPES,))
            if last["provider"] == route.upstream.slug:
                message = _with(last, message)
            else:
                untold[field] = None
        if demands and message.get("tool_calls") and not message.get("reasoning_details"):
            first, *others = message["tool_calls"]
            if "extra_content" not in first and "provider_specific_fields" not in first:
                message = {**message, "tool_calls": [{**first, "extra_content": NOT_SIGNED}, *others]}
                untold["thought_signature"] = None
        restored.append(message)
    return restored, untold


def _with(envelope: Json, message: Json) -> Json:
    """A message with what is in its envelope."""
    message = {**message, **{name: envelope[name] for name in OF_A_MESSAGE if name in envelope}}
    if calls := envelope.get("calls"):
        message["tool_calls"] = [{**call, **calls.get(call["id"], {})} for call in message.get("tool_calls", ())]
    return {name: value for name, value in message.items() if name != "tool_calls" or value}
