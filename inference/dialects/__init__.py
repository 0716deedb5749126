"""The registry of wire languages: a provider's `dialect` names one of these."""

from typing import Any

from catalogue.pricing import Usage

from .anthropic import AnthropicDialect
from .base import Dialect
from .openai import OpenAIDialect

DIALECTS: dict[str, Dialect] = {"openai": OpenAIDialect(), "anthropic": AnthropicDialect()}


def read_usage(dialect: str, reported: Any, *, is_embedding: bool) -> Usage | None:
    """The usage that an upstream reported in the words of this dialect, as it is read today.

    Raises ContradictoryUsage, and KeyError for a dialect that is no more.
    """
    return DIALECTS[dialect].usage(reported, is_embedding=is_embedding)
