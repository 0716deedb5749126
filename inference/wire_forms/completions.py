"""Implements `POST /v1/completions`. In its chunks each choice has `text` and `logprobs`, which may be null."""

from collections.abc import Collection, Mapping
from typing import Any

from gateway.edge.checks import fault
from gateway.edge.strict_fields import CheckedField, FastSerializer

from ..answers import choices_of
from ..call import Call, Shape
from ..chunks import Choice, ChunkNormaliser, Normaliser, extras_of
from ..finishes import finish_reason
from ..words import REASONING_FIELDS, THOUGHTS, field_bytes, message_bytes
from .base import Endpoint, WireForm
from .sampling import SamplingRequest, pass_through, sampling_call

OBJECT = "text_completion"
DEFAULT_MAX_TOKENS = 16


def _prompt(data: Any) -> str:
    prompt = data[0] if isinstance(data, list) and len(data) == 1 else data
    if not isinstance(prompt, str):
        raise fault("", "must be a string. Several prompts are several requests.")
    return prompt


class CompletionRequest(SamplingRequest):
    """Names the fields that are checked."""

    prompt = CheckedField(_prompt)


CHECKS = FastSerializer(CompletionRequest(), "model", "prompt")


class CompletionForm(WireForm):
    """Implements the wire form of text completions."""

    path, endpoint, shape = "completions", Endpoint.COMPLETION, Shape.COMPLETION

    def call(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        present, checked = CHECKS.checked(body)
        passed = pass_through(present) | {"prompt": checked["prompt"]}
        return sampling_call(
            Shape.COMPLETION, checked, sent=frozenset(present), body=passed, default_cap=DEFAULT_MAX_TOKENS
        )

    def normaliser(
        self, *, id: str, created: int, model: str, choices: int, tool_names: Collection[str] = ()
    ) -> Normaliser:
        return TextNormaliser(id=id, created=created, model=model, choices=choices)

    def normalised(self, answer: Mapping[str, Any], call: Call, *, id: str, created: int, model: str) -> dict[str, Any]:
        return text_answer(answer, id=id, created=created, model=model)

    def output_bytes(self, normalised: Mapping[str, Any]) -> int:
        return sum(text_bytes(choice) for choice in normalised.get("choices", ()))


class TextNormaliser(ChunkNormaliser):
    """Normalises a stream of text completion chunks."""

    object_name = OBJECT

    def _shape(self, choice: dict[str, Any], state: Choice) -> None:
        said = choice.pop("delta")
        choice["text"] = said.get("content") or said.get("refusal") or ""
        choice.setdefault("logprobs", None)
        choice.update((name, said[name]) for name in REASONING_FIELDS if name in said)

    def _silent(self, index: int) -> dict[str, Any]:
        return {"index": index, "text": "", "logprobs": None, "finish_reason": None}

    def _reason(self, state: Choice) -> str:
        return text_finish_reason(state.reason) or "stop"


def text_answer(answer: Mapping[str, Any], *, id: str, created: int, model: str) -> dict[str, Any]:
    """Builds the `text_completion` object, still without usage and metadata. Raises like `answers.chat_answer`."""
    own = {"id": id, "object": OBJECT, "created": created, "model": model}
    choices = [_text_choice(choice, position) for position, choice in enumerate(choices_of(answer))]
    return {**extras_of(answer), **own, "choices": choices}


def _text_choice(choice: Mapping[str, Any], position: int) -> dict[str, Any]:
    text = choice.get("text")
    return {
        "logprobs": None,
        **choice,
        "index": choice["index"] if type(choice.get("index")) is int else position,
        "text": text if isinstance(text, str) else "",
        "finish_reason": text_finish_reason(choice.get("finish_reason")) or "stop",
    }


def text_finish_reason(reported: Any) -> str | None:
    """Returns the finish reason like `finish_reason`, except that a text completion cannot have `tool_calls`."""
    reason = finish_reason(reported)
    return "stop" if reason == "tool_calls" else reason


def text_bytes(choice: Mapping[str, Any]) -> int:
    """Counts the UTF-8 bytes of a choice's text and reasoning."""
    return field_bytes(choice, ("text",)) + message_bytes({name: choice[name] for name in THOUGHTS if name in choice})
