"""Text completion chunks: `text` on every choice."""

from collections.abc import Mapping
from typing import Any

from .chunks import Choice, Chunks, text_finish_reason

REASONING_FIELDS = ("reasoning_content", "reasoning")


class TextChunks(Chunks):
    """The state of one text completion stream."""

    object_name = "text_completion"

    def _finish(self, reported: Any) -> str | None:
        return text_finish_reason(reported)

    def _content(self, choice: Mapping[str, Any], known: Choice, finish: str | None) -> tuple[dict[str, Any], int]:
        text = choice.get("text")
        text = text if isinstance(text, str) else ""
        reasoning = sum(len(str(choice[name]).encode()) for name in REASONING_FIELDS if choice.get(name))
        return ({"text": text} if text else {}), len(text.encode()) + reasoning

    def _worded(self, content: dict[str, Any], known: Choice) -> dict[str, Any]:
        return {"text": content.get("text", "")}

    def _said_nothing(self) -> dict[str, Any]:
        return {"text": ""}
