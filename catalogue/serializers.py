"""The query of the catalogue's endpoints."""

from collections.abc import Iterable
from typing import Any

from rest_framework import serializers

from .jurisdiction import FILTERS
from .models import Modality


class Choice(serializers.ChoiceField):
    """One word of a few; a refusal lists them."""

    def __init__(self, choices: Iterable[str]) -> None:
        words = list(choices)
        message = f"must be one of {', '.join(words)}."
        super().__init__(choices=words, required=False, error_messages={"invalid_choice": message})


class CatalogueQuery(serializers.Serializer[Any]):
    """Two filters, each of which may be left out; anything else than their values is refused, the empty one too.

    It takes a plain dict: in a QueryDict an empty value would count as left out.
    """

    jurisdiction = Choice(sorted(FILTERS))
    modality = Choice(Modality.values)


class ProvidersQuery(serializers.Serializer[Any]):
    """As `CatalogueQuery`, without the modality."""

    jurisdiction = Choice(sorted(FILTERS))
