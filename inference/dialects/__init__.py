"""The wire languages of `settings.DIALECTS`: a provider's `dialect` names one of these."""

from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from catalogue.pricing import Usage

from .base import Dialect

DIALECTS: dict[str, Dialect] = {name: import_string(path)() for name, path in settings.DIALECTS.items()}


def read_usage(dialect: str, reported: Any, *, is_embedding: bool) -> Usage | None:
    """The usage that an upstream reported in the words of this dialect, as it is read today.

    Raises ContradictoryUsage, and KeyError for a dialect that is no more.
    """
    return DIALECTS[dialect].usage(reported, is_embedding=is_embedding)
