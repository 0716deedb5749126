"""What must come of a recording: an error, or an answer with its usage."""

import json
from dataclasses import dataclass, field
from decimal import Decimal

from tests.replay import bill, said
from tests.replay.bill import Tokens
from tests.replay.recordings import Json, Recording, payloads
from tests.replay.said import Said

# Errors that come with status 200, by their type or code: the status they stand for (docs/providers.md).
MEANS = {"invalid_request_error": 400, "content_filter": 400, "insufficient_quota": 429}
NO_ANSWER = (502, "")  # what is none: nonsense of the provider's


@dataclass(slots=True)
class Truth:
    """What a recording says. `refusal` is the status and the words of an error in the answer's place, `break_off` those
    of one in an open stream."""

    refusal: tuple[int, str] | None = None
    break_off: tuple[int, str] | None = None
    answer: Json = field(default_factory=dict)  # whole, or put together from the stream
    events: list[Json] = field(default_factory=list)  # of a stream
    choices: dict[int, Said] = field(default_factory=dict)
    tokens: Tokens | None = None
    flags: frozenset[str] = frozenset()  # of what contradicts itself in the usage

    @property
    def cost(self) -> Decimal | None:
        return None if self.tokens is None else bill.cost(self.tokens)


def truth_of(recording: Recording) -> Truth:
    """Read from the recording alone."""
    if recording.is_error:
        return Truth(refusal=(recording.status, _words(recording.body)))
    truth = Truth()
    if recording.streamed:
        truth.events = payloads(recording.body)
        _find_error(truth)
    else:
        try:
            truth.answer = json.loads(recording.body)
        except ValueError:
            truth.refusal = NO_ANSWER
        if truth.answer.get("error"):
            truth.refusal = _in_place(truth.answer)
    if truth.refusal is None:
        _read(truth, recording)
    return truth


def _find_error(truth: Truth) -> None:
    """An error event behind a finish ends an answer that is complete; one before any output is a refusal."""
    for event in truth.events:
        if any(choice.get("finish_reason") for choice in event.get("choices") or ()):
            return
        if event.get("error"):
            found = _in_place(event)
            told = said.joined_chat(truth.events)["choices"]
            truth.refusal, truth.break_off = (None, found) if told else (found, None)
            return


def _read(truth: Truth, recording: Recording) -> None:
    match recording.api:
        case "chat" | "completions":
            if recording.streamed:
                truth.answer = said.joined_chat(truth.events)
            if not truth.answer.get("choices"):
                truth.refusal = NO_ANSWER
            truth.choices = (said.of_chat if recording.api == "chat" else said.of_completion)(truth.answer)
        case "messages":
            if recording.streamed:
                truth.answer = said.joined_message(truth.events)
            truth.choices = {0: said.of_message(truth.answer)}
        case "responses" if recording.streamed:
            truth.answer = said.joined_response(truth.events)
    for choice in truth.choices.values():
        said.as_told(choice)
    usage = truth.answer.get("usage") or (truth.answer.get("x_groq") or {}).get("usage")
    truth.tokens = bill.tokens_of(recording, usage)
    if truth.tokens is not None:
        truth.flags = truth.tokens.flags
        if not truth.tokens.prompt and truth.tokens.completion:  # no prompt is empty: it is estimated
            truth.tokens = None


def _in_place(answer: Json) -> tuple[int, str]:
    error = answer["error"]
    named = [error.get("type"), error.get("code")] if isinstance(error, dict) else []
    return next((MEANS[name] for name in named if name in MEANS), 500), _words(json.dumps(answer))


def _words(body: str) -> str:
    """The message of an error, wherever it stands. OpenRouter's own says less than that of the provider behind it."""
    try:
        found = json.loads(body)
    except ValueError:
        return body
    error = found.get("error") if isinstance(found, dict) else None
    behind = (error.get("metadata") or {}).get("raw") if isinstance(error, dict) else None
    if isinstance(behind, str):
        return _words(behind)
    for name in ("error", "message", "detail", "msg"):
        while isinstance(found, dict) and name in found:
            found = found[name]
    return found if isinstance(found, str) else ""
