"""Content that comes in blocks, as from Mistral's reasoning models, in the strings that OpenAI's clients know."""

from typing import Any

from ..chunks import dicts


def put_in_words(answer: dict[str, Any], name: str) -> None:
    """Changes the message or the delta (`name`) of each choice whose content is an array of blocks.

    Text becomes `content`, thinking `reasoning_content` and a refusal `refusal`. What is said in no words (references,
    images) is left out.
    """
    for choice in dicts(answer.get("choices")):
        said = choice.get(name)
        if isinstance(said, dict) and isinstance(said.get("content"), list):
            for field, text in _texts(said.pop("content")).items():
                # An upstream that fills the field as well says the same in two ways.
                said[field] = said.get(field) or text


def _texts(blocks: list[Any]) -> dict[str, str]:
    """What the blocks say, by the field of a message that it belongs in."""
    texts: dict[str, str] = {}
    for field, text in map(_text, blocks):
        if text:
            texts[field] = texts.get(field, "") + text
    return texts


def _text(block: Any) -> tuple[str, str]:
    match block:
        case {"type": "thinking", "thinking": [*parts]}:
            return "reasoning_content", "".join(_text(part)[1] for part in parts)
        case {"type": "thinking", "thinking": str(text)}:
            return "reasoning_content", text
        case {"type": "refusal", "refusal": str(text)}:
            return "refusal", text
        case {"text": str(text)} | str(text):
            return "content", text
        case _:
            return "content", ""
