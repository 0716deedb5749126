"""Derives from a recording what a client must receive: an error, or an answer with its usage."""

import json
from dataclasses import dataclass, field
from decimal import Decimal

from tests.replay import answers, bill
from tests.replay.answers import AnsweredChoice
from tests.replay.bill import Tokens
from tests.replay.recordings import Json, Recording, payloads

# Some errors come with status 200. Their type or code stands for one of these statuses (docs/providers.md).
MEANS = {"invalid_request_error": 400, "content_filter": 400, "insufficient_quota": 429}
NO_ANSWER = (502, "")  # the provider sent something that is not an answer


@dataclass(slots=True)
class Truth:
    """Holds what a recording contains.

    `refusal` is the status and message of an error instead of an answer, `break_off` the status and message of an error
    within a stream.
    """

    refusal: tuple[int, str] | None = None
    break_off: tuple[int, str] | None = None
    answer: Json = field(default_factory=dict)  # whole, or put together from the stream
    events: list[Json] = field(default_factory=list)  # a stream's events
    choices: dict[int, AnsweredChoice] = field(default_factory=dict)
    tokens: Tokens | None = None
    flags: frozenset[str] = frozenset()  # flags for contradictions in the usage

    @property
    def cost(self) -> Decimal | None:
        return None if self.tokens is None else bill.cost(self.tokens)


def truth_of(recording: Recording) -> Truth:
    """Derives the truth from the recording alone."""
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
    """Sets `refusal` for an error before any output, `break_off` for a later one, and neither after a finish."""
    for event in truth.events:
        if any(choice.get("finish_reason") for choice in event.get("choices") or ()):
            return
        if event.get("error"):
            found = _in_place(event)
            delivered = answers.joined_chat(truth.events)["choices"]
            truth.refusal, truth.break_off = (None, found) if delivered else (found, None)
            return


def _read(truth: Truth, recording: Recording) -> None:
    match recording.api:
        case "chat" | "completions":
            if recording.streamed:
                truth.answer = answers.joined_chat(truth.events)
            if not truth.answer.get("choices"):
                truth.refusal = NO_ANSWER
            truth.choices = (answers.of_chat if recording.api == "chat" else answers.of_completion)(truth.answer)
        case "messages":
            if recording.streamed:
                truth.answer = answers.joined_message(truth.events)
            truth.choices = {0: answers.of_message(truth.answer)}
        case "responses" if recording.streamed:
            truth.answer = answers.joined_response(truth.events)
    for choice in truth.choices.values():
        answers.set_api_finish(choice)
    usage = truth.answer.get("usage") or (truth.answer.get("x_groq") or {}).get("usage")
    truth.tokens = bill.tokens_of(recording, usage)
    if truth.tokens is not None:
        truth.flags = truth.tokens.flags
        if not truth.tokens.prompt and truth.tokens.completion:  # no prompt is empty, so it is estimated
            truth.tokens = None


def _in_place(answer: Json) -> tuple[int, str]:
    error = answer["error"]
    named = [error.get("type"), error.get("code")] if isinstance(error, dict) else []
    return next((MEANS[name] for name in named if name in MEANS), 500), _words(json.dumps(answer))


def _words(body: str) -> str:
    """Returns an error's message from any of its usual places, preferring the provider's own to OpenRouter's."""
    try:
        found = json.loads(body)
    except ValueError:
        return body
    error = found.get("error") if isinstance(found, dict) else None
    original = (error.get("metadata") or {}).get("raw") if isinstance(error, dict) else None
    if isinstance(original, str):
        return _words(original)
    for name in ("error", "message", "detail", "msg"):
        while isinstance(found, dict) and name in found:
            found = found[name]
    return found if isinstance(found, str) else ""
