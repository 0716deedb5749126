"""Reads an answer of the gateway strictly, as a client of its form does."""

import json
from dataclasses import dataclass
from decimal import Decimal

from tests.replay import answers
from tests.replay.answers import AnsweredChoice
from tests.replay.recordings import Json, events

DONE = "[DONE]"
ERRORS = ("error", "response.failed")


@dataclass(frozen=True, slots=True)
class Reply:
    """Holds a response; a status of 0 means that the connection broke."""

    status: int
    headers: dict[str, str]
    body: str


@dataclass(slots=True)
class Answer:
    """Holds an answer with status 200. `failed` is the error with which its stream broke off, or empty."""

    whole: Json
    events: list[Json]
    choices: dict[int, AnsweredChoice]
    failed: str = ""


def read(form: str, body: str, *, streamed: bool) -> Answer:
    """Reads an answer. Raises ValueError if it does not follow the form."""
    if streamed:
        return _stream(form, body)
    whole = json.loads(body, parse_float=Decimal)
    return Answer(whole, [], _choices(form, whole))


def _choices(form: str, whole: Json) -> dict[int, AnsweredChoice]:
    match form:
        case "chat":
            return answers.of_chat(whole)
        case "completions":
            return answers.of_completion(whole)
        case "messages":
            return {0: answers.of_message(whole)}
        case "responses":
            return {0: answers.of_response(whole)}
    return {}


def _stream(form: str, body: str) -> Answer:
    received = list(events(body))
    if form in ("chat", "completions"):
        return _chunks(form, [data for _, data in received], [name for name, _ in received])
    if form == "responses":
        _require(received.pop()[1] == DONE, "no [DONE]")
    payloads: list[Json] = [json.loads(data, parse_float=Decimal) for _, data in received]
    for (name, _), payload in zip(received, payloads, strict=True):
        _require(name == payload["type"], f"an event {payload['type']} is named {name}")
    if errors := [payload for payload in payloads if payload["type"] in ERRORS]:
        return Answer({}, [], {}, failed=json.dumps(errors[0], default=str)[:1000])
    if form == "messages":
        _require(payloads[-1]["type"] == "message_stop", "no message_stop")
        whole = answers.joined_message(payloads)
    else:
        numbers = [payload["sequence_number"] for payload in payloads]
        _require(numbers == list(range(len(numbers))), "events are not numbered from 0")
        whole = answers.joined_response(payloads)
    return Answer(whole, payloads, _choices(form, whole))


def _chunks(form: str, received: list[str], names: list[str | None]) -> Answer:
    """Reads a stream of chunks, and checks what docs/api.md#chunks promises."""
    _require(not any(names), "an event has a name")
    if received[-1] != DONE:
        return Answer({}, [], {}, failed=received[-1])
    chunks: list[Json] = [json.loads(data, parse_float=Decimal) for data in received[:-1]]
    _require([chunk for chunk in chunks if "usage" in chunk] == chunks[-1:], "not only the last chunk has usage")
    for name in ("id", "object", "created", "model"):
        _require(len({chunk[name] for chunk in chunks}) == 1, f"chunks differ in {name}")
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    _require(all("finish_reason" in choice for choice in choices), "a choice without finish_reason")
    for index in {choice["index"] for choice in choices}:
        own = [choice for choice in choices if choice["index"] == index]
        finishes = [choice["finish_reason"] is not None for choice in own]
        _require(finishes == [False] * (len(own) - 1) + [True], "a finish that is not the last of its choice")
        if form == "chat":
            roles = ["role" in choice["delta"] for choice in own]
            _require(roles == [True] + [False] * (len(own) - 1), "a role that is not the first of its choice")
            _require_calls(own)
    whole = answers.joined_chat(chunks)
    return Answer(whole, chunks, _choices(form, whole))


def _require_calls(choices: list[Json]) -> None:
    """Checks that tool calls are numbered from 0 without gaps, and that each has its id once."""
    begun = 0
    for choice in choices:
        for fragment in choice["delta"].get("tool_calls") or ():
            is_new = fragment["index"] == begun
            _require(is_new or fragment["index"] < begun, "tool calls are numbered with a gap")
            _require(("id" in fragment) == is_new, "a tool call does not have its id exactly once")
            begun += is_new


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
