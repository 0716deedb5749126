"""The registry of wire languages: a provider's `dialect` names one of these."""

from .anthropic import AnthropicDialect
from .base import Dialect
from .openai import OpenAIDialect

DIALECTS: dict[str, Dialect] = {"openai": OpenAIDialect(), "anthropic": AnthropicDialect()}
