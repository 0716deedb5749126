"""Compares what a client received with what was recorded, in the recording's form or in another one."""

import base64
import re
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from tests.replay.answers import AnsweredChoice, with_old_call
from tests.replay.client import Answer
from tests.replay.recordings import Json
from tests.replay.replay_requests import ReplayRequest
from tests.replay.truth import Truth

# The gateway sets some of these; others are fillers of a provider's protocol; an error after the finish ends nothing.
OWN_OF_CHAT = (
    *("id", "object", "created", "model", "choices", "usage", "gateway_metadata"),
    *("obfuscation", "p", "x_groq", "error"),
)
OWN = {
    "chat": OWN_OF_CHAT,
    "completions": OWN_OF_CHAT,
    "messages": ("id", "model", "usage", "gateway_metadata"),
    "responses": ("id", "model", "store", "previous_response_id", "usage", "gateway_metadata"),
    "embeddings": ("id", "object", "created", "model", "data", "usage", "gateway_metadata"),
}
OF_CHOICE = ("index", "message", "text", "finish_reason", "delta")
CALL_ID = re.compile(r"calls\.\d+\.id\.$")
ABSURD = 2.0**20  # no number in an embedding is this large
KEEP_ALIVE = ("ping", "keepalive")  # keep-alives of the provider's connection


def in_own_form(request: ReplayRequest, truth: Truth, answer: Answer) -> Iterator[str]:
    """Yields the differences between an answer and everything that the provider sent."""
    form = request.form
    if form in ("chat", "completions"):
        yield from _choices(truth, answer)
    elif form == "embeddings":
        yield from _vectors(request, truth, answer)
    elif request.streamed:
        yield from _events(form, truth.events, answer.events)
    yield from differences("", _without(truth.answer, OWN[form]), _without(answer.whole, OWN[form]))


def in_form(form: str, truth: Truth, answer: Answer) -> Iterator[str]:
    """Yields the differences between an answer and the part of the recording that this other form can express."""
    expected, got = _plain(with_old_call(truth.choices[0])), _plain(answer.choices[0])
    if form == "messages":
        # In the Messages API a refusal is text with a stop reason of its own, and a tool's input is an object.
        expected["text"] += expected["refusal"]
        if expected["refusal"] and expected["finish"] == "stop":
            expected["finish"] = "content_filter"
        expected["refusal"] = ""
        if expected["signed"] or "reasoning_details" in truth.choices[0].more:
            # A provider's signature is appended to the id of a call, which clients send back.
            got["calls"] = [{**call, "id": call["id"].partition("_gw1_")[0]} for call in got["calls"]]
        for call in expected["calls"]:
            if not isinstance(call["arguments"], dict):
                call["arguments"] = {"invalid_arguments": call["arguments"]}
    if form != "chat":  # other forms have it encrypted, and only on request
        expected["signed"] = got["signed"] = []
    if form == "responses" and expected["finish"] in ("stop", "tool_calls"):
        expected["finish"] = "tool_calls" if expected["calls"] else "stop"  # both are `completed` in Responses
    yield from differences("", expected, got)


def _choices(truth: Truth, answer: Answer) -> Iterator[str]:
    if truth.choices.keys() != answer.choices.keys():
        yield f"choices {sorted(answer.choices)}, not {sorted(truth.choices)}"
        return
    recorded, came = _by_index(truth.answer), _by_index(answer.whole)
    for index, choice in truth.choices.items():
        contents = (_plain(each) | {"message": each.more} for each in (choice, answer.choices[index]))
        yield from differences(f"choices[{index}].", *contents)
        other_members = (_without(each[index], OF_CHOICE) for each in (recorded, came))
        yield from differences(f"choices[{index}].", *other_members)


def _by_index(answer: Json) -> dict[int, Json]:
    return {choice.get("index", position): choice for position, choice in enumerate(answer["choices"])}


def _plain(choice: AnsweredChoice) -> Json:
    """Returns the part of a choice that every form can express."""
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in choice.calls]
    spoken = {"text": choice.text, "reasoning": choice.reasoning, "refusal": choice.refusal}
    return {**spoken, "calls": calls, "cited": choice.cited, "signed": choice.signed, "finish": choice.finish}


def _vectors(request: ReplayRequest, truth: Truth, answer: Answer) -> Iterator[str]:
    recorded, came = vectors_of(truth.answer), vectors_of(answer.whole)
    if not all(map(is_readable, recorded)):  # the judge expects a refusal if the client requested floats
        if came != recorded:
            yield "the vectors differ"
        return
    if any(isinstance(vector, str) != (request.body.get("encoding_format") == "base64") for vector in came):
        yield "vectors in another format than the client requested"
    if list(map(_floats, recorded)) != list(map(_floats, came)):
        yield "the vectors differ"


def vectors_of(answer: Json) -> list[Any]:
    """Returns the vectors in the order of the inputs."""
    return [entry["embedding"] for entry in sorted(answer["data"], key=lambda entry: entry.get("index", 0))]


def _floats(vector: Any) -> list[float]:
    """Returns 32-bit numbers, which base64 encodes as their own bytes."""
    raw = base64.b64decode(vector) if isinstance(vector, str) else struct.pack(f"<{len(vector)}f", *map(float, vector))
    return [number for (number,) in struct.iter_unpack("<f", raw)]


def is_readable(vector: Any) -> bool:
    """Tells whether a vector consists of 32-bit floats. 8-bit numbers that are read as floats have absurd sizes."""
    try:
        return all(abs(number) < ABSURD for number in _floats(vector))
    except struct.error:
        return False


def _events(form: str, recorded: list[Json], came: list[Json]) -> Iterator[str]:
    expected = [_bare(form, event) for event in recorded if event.get("type") not in KEEP_ALIVE]
    got = [_bare(form, event) for event in came]
    if len(expected) != len(got):
        yield f"{len(got)} events, not {len(expected)}"
        return
    for number, both in enumerate(zip(expected, got, strict=True)):
        yield from differences(f"events[{number}].", *both)


def _bare(form: str, event: Json) -> Json:
    """Returns an event without the members that the gateway sets."""
    bare = _without(event, ("usage", "gateway_metadata", "sequence_number"))
    for name in ("message", "response"):
        if isinstance(bare.get(name), dict):
            bare[name] = _without(bare[name], OWN[form])
    return bare


def _without(source: Json, names: tuple[str, ...]) -> Json:
    return {name: value for name, value in source.items() if name not in names}


def differences(path: str, expected: Any, got: Any) -> Iterator[str]:
    """Yields the differences between two JSON values. Null and absent are equal."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in {**expected, **got}:
            yield from differences(f"{path}{name}.", expected.get(name), got.get(name))
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for position, both in enumerate(zip(expected, got, strict=True)):
            yield from differences(f"{path}{position}.", *both)
    elif expected == "" and CALL_ID.search(path):
        if not got:  # the gateway gives an id to a call that the provider sent without one
            yield f"{path.rstrip('.')} is missing"
    elif expected != got and not (isinstance(expected, float) and got == Decimal(repr(expected))):
        yield f"{path.rstrip('.')} is {_short(got)}, not {_short(expected)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:60]}…{text[-50:]}"
