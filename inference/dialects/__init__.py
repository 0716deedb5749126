"""Loads the dialects of `settings.DIALECTS`; a provider's `dialect` names one of them."""

from functools import partial
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from catalogue.pricing import AUDIO_PROMPTS, REASONING, TOTAL_MISMATCH, Usage

from .base import Dialect

DIALECTS: dict[str, Dialect] = {name: import_string(path)() for name, path in settings.DIALECTS.items()}


def read_usage(dialect: str, reported: Any, *, is_embedding: bool, flags: str, prompt: int) -> Usage | None:
    """Reads the usage that a record's upstream reported in this dialect, by today's code.

    Tokens that only the reported total includes were billed if the provider's catalogue entry then said what they are;
    otherwise the record's `flags` say so. If they could be audio of the prompt or reasoning, `prompt`, the record's
    number of prompt tokens, decides.

    Raises ContradictoryUsage, and KeyError if the dialect no longer exists.
    """
    read = partial(DIALECTS[dialect].usage, reported, is_embedding=is_embedding)
    if TOTAL_MISMATCH in flags.split():
        return read()
    usage = read(total_includes=(REASONING, AUDIO_PROMPTS))
    return usage if usage is None or usage.prompt == prompt else read(total_includes=(REASONING,))
