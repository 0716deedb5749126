"""The wire languages of `settings.DIALECTS`: a provider's `dialect` names one of these."""

from functools import partial
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from catalogue.pricing import AUDIO_PROMPTS, REASONING, TOTAL_MISMATCH, Usage

from .base import Dialect

DIALECTS: dict[str, Dialect] = {name: import_string(path)() for name, path in settings.DIALECTS.items()}


def read_usage(dialect: str, reported: Any, *, is_embedding: bool, flags: str, prompt: int) -> Usage | None:
    """The usage that an upstream reported in the words of this dialect, as it is read today.

    `flags` and `prompt` are its record's: what stood in the total alone was billed, as the catalogue said of the
    provider then, or the record is flagged for it. Where it might be either, the tokens of the prompt tell what it was.

    Raises ContradictoryUsage, and KeyError for a dialect that is no more.
    """
    read = partial(DIALECTS[dialect].usage, reported, is_embedding=is_embedding)
    if TOTAL_MISMATCH in flags.split():
        return read()
    usage = read(total_includes=(REASONING, AUDIO_PROMPTS))
    return usage if usage is None or usage.prompt == prompt else read(total_includes=(REASONING,))
