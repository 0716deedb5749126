"""Packs what a provider signed or encrypted into envelopes: texts that clients send back unread with the next turn.

Gemini signs its tool calls (`extra_content`) and refuses the next turn without the signature; OpenRouter encrypts
reasoning (`reasoning_details`). Chats have fields for these. In Responses the envelope is the `encrypted_content` of a
reasoning item. In Messages it is appended to a tool call's id, because Claude Code drops the `signature` of thinking
if the answer's model differs from the requested one, as it always does with an alias. What belongs to no call, or comes
after the last one, goes into the `signature` of thinking.

An envelope holds all that was signed up to that point, so the last one of an answer counts. It names its provider, and
its content is never sent to another one.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from catalogue.routing.routes import Route

from ..answers import merged, plain_values
from ..dialects.base import DroppedFields, is_shallow
from ..words import dicts, object_of, text_of, without

Json = dict[str, Any]

PREFIX = "gw1."
# An id with an envelope, in the characters that Anthropic's API allows in ids.
SIGNED_ID = re.compile(r"(?P<id>.+?)_gw1_(?P<envelope>[A-Za-z0-9_-]+)", re.DOTALL)
BASE64_TO_ID, ID_TO_BASE64 = str.maketrans("+/", "-_", "="), str.maketrans("-_", "+/")
SIGNED_LISTS = ("reasoning_details", "thinking_blocks")
SIGNED_MEMBERS = (*SIGNED_LISTS, "extra_content")
# The first is from Google's own endpoint, the second from LiteLLM in front of it.
SIGNED_CALL_MEMBERS = ("extra_content", "provider_specific_fields")
ENVELOPES = "envelopes"  # the member of a message that holds its envelopes until the route is known
# The models that refuse an unsigned call: Gemini 3 and later.
DEMANDS_SIGNATURES = re.compile(r"(?:^|/)gemini-(?:[3-9]|\d\d)")
# They accept this value in place of a signature (ai.google.dev, Thought signatures).
NOT_SIGNED: Json = {"google": {"thought_signature": "skip_thought_signature_validator"}}


class Signatures:
    """Collects what the provider of an answer signs. `model` is the route id in the answer."""

    def __init__(self, model: str, names: Iterable[str] = SIGNED_MEMBERS) -> None:
        self._provider = model.partition("/")[0]
        self._lists = [name for name in SIGNED_LISTS if name in names]
        self._members: Json = {}
        self._calls: Json = {}  # the signed members of each call, by its id
        self._ids: dict[Any, str] = {}  # the ids of calls, by index
        self._is_signed = False  # unsigned reasoning needs no envelope: it has a field of its own
        self.is_pending = False  # True if something came that is in no envelope yet

    def take(self, said: Mapping[str, Any]) -> None:
        """Collects from the members of a message or a delta."""
        for name in self._lists:
            if items := dicts(said.get(name)):
                self._members = merged(self._members, {name: items})
                self._is_signed = self._is_signed or any(item.get("data") or item.get("signature") for item in items)
                self.is_pending = self._is_signed
        for vendor, extra in object_of(said.get("extra_content")).items():
            # `thought` describes only the piece of text that it came with.
            if kept := without(object_of(extra), ("thought",)):
                self._members = merged(self._members, {"extra_content": {vendor: kept}})
                self._is_signed = self.is_pending = True

    def take_call(self, fragment: Mapping[str, Any]) -> None:
        """Collects from a tool call or a piece of one."""
        if len(fragment) == 2:  # only an index and more arguments
            return
        index = fragment.get("index")
        if identity := text_of(fragment.get("id")):
            self._ids[index] = identity
        kept = {name: fragment[name] for name in SIGNED_CALL_MEMBERS if object_of(fragment.get(name))}
        if kept and index in self._ids:
            self._calls = merged(self._calls, {self._ids[index]: kept})
            self._is_signed = self.is_pending = True

    def envelope(self, *, repeats: bool = False) -> str:
        """Returns an envelope with all that was signed so far.

        Returns an empty text if nothing was signed since the last envelope. With `repeats`, it then returns the same
        envelope again.
        """
        if not (self.is_pending or (repeats and self._is_signed)):
            return ""
        self.is_pending = False
        calls = {"calls": self._calls} if self._calls else {}
        return envelope_of(plain_values({"provider": self._provider, **self._members, **calls}))


def envelope_of(content: Any) -> str:
    """Packs content into an envelope."""
    return PREFIX + base64.b64encode(orjson.dumps(content)).decode()


def signed_id(identity: str, envelope: str) -> str:
    """Appends the envelope, unless it is empty, to the id of a call."""
    return f"{identity}_gw1_{envelope.removeprefix(PREFIX).translate(BASE64_TO_ID)}" if envelope else identity


def parts_of_id(identity: str) -> tuple[str, str]:
    """Splits the id of a call into the provider's own id and the envelope, which is empty for most calls."""
    if (found := SIGNED_ID.fullmatch(identity)) is None:
        return identity, ""
    text = found["envelope"].translate(ID_TO_BASE64)
    return found["id"], f"{PREFIX}{text}{'=' * (-len(text) % 4)}"


def is_envelope(text: Any) -> bool:
    """Tells whether a signature is an envelope of ours, which no provider can read."""
    return isinstance(text, str) and text.startswith(PREFIX)


def opened(text: Any) -> Any:
    """Returns the content of an envelope: an object, or an array of signed thinking; None if it cannot be read."""
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
    """Returns an envelope's object if it has the form that `Signatures.envelope` writes: clients may send anything."""
    lists = {name: content[name] for name in SIGNED_LISTS if name in content}
    calls = content.get("calls", {})
    is_ours = (
        isinstance(content.get("provider"), str)
        and all(isinstance(items, list) and all(map(_is_item, items)) for items in lists.values())
        and isinstance(content.get("extra_content", {}), dict)
        and isinstance(calls, dict)
        and all(isinstance(each, dict) and each.keys() <= set(SIGNED_CALL_MEMBERS) for each in calls.values())
    )
    return content if is_ours else None


def _is_item(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type", ""), str)


def restored_for_route(messages: list[Json], route: Route, field: str) -> tuple[list[Json], DroppedFields]:
    """Restores the content of the messages' `ENVELOPES`, or drops it if it is another provider's than the route's.

    Returns the messages and the names of what was dropped or added. `field` is the name of the envelope in the client's
    API.
    """
    dropped = DroppedFields()
    demands = DEMANDS_SIGNATURES.search(route.upstream_model) is not None
    restored = []
    for each in messages:
        message = each
        if ENVELOPES in message:
            *_, last = message[ENVELOPES]
            message = without(message, (ENVELOPES,))
            if last["provider"] == route.upstream.slug:
                message = _restored(last, message)
            else:
                dropped[field] = None
        if demands and message.get("tool_calls") and not message.get("reasoning_details"):
            first, *others = message["tool_calls"]
            if "extra_content" not in first and "provider_specific_fields" not in first:
                message = {**message, "tool_calls": [{**first, "extra_content": NOT_SIGNED}, *others]}
                dropped["thought_signature"] = None
        restored.append(message)
    return restored, dropped


def _restored(envelope: Json, message: Json) -> Json:
    message = {**message, **{name: envelope[name] for name in SIGNED_MEMBERS if name in envelope}}
    if calls := envelope.get("calls"):
        message["tool_calls"] = [{**call, **calls.get(call["id"], {})} for call in message.get("tool_calls", ())]
    return {name: value for name, value in message.items() if name != "tool_calls" or value}
