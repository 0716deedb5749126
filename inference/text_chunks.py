"""Text completion chunks: `text` on every choice, and `logprobs`, which are null where there are none."""

from collections.abc import Mapping
from typing import Any, ClassVar

from .chunks import REASONING_FIELDS, Choice, Chunks, bytes_said, bytes_thought, text_finish_reason

# What a choice says: its text, and a chat model's reasoning beside it.
SPOKEN = ("text", *REASONING_FIELDS)


class TextChunks(Chunks):
    """The state of one text completion stream."""

    object_name = "text_completion"
    nullable: ClassVar = {"logprobs": None}

    def _finish(self, reported: Any) -> str | None:
        return text_finish_reason(reported)

    def _content(self, choice: Mapping[str, Any], known: Choice, finish: str | None) -> tuple[dict[str, Any], int]:
        text = choice.get("text")
        return ({"text": text} if text and isinstance(text, str) else {}), text_bytes(choice)

    def _worded(self, content: dict[str, Any], known: Choice) -> dict[str, Any]:
        return {"text": content.get("text", "")}

    def _said_nothing(self) -> dict[str, Any]:
        return {"text": ""}


def text_bytes(choice: Mapping[str, Any]) -> int:
    """UTF-8 bytes of the text of a choice and of the reasoning beside it, for the estimator."""
    return bytes_said(choice, ("text",)) + bytes_thought(choice)
