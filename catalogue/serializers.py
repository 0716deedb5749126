"""The query of the catalogue's endpoints."""

from typing import Any

from rest_framework import serializers

from .jurisdiction import FILTERS
from .models import Modality


class CatalogueQuery(serializers.Serializer[Any]):
    """Two filters, each of which may be left out; anything else than their values is refused, the empty one too.

    It takes a plain dict: in a QueryDict an empty value would count as left out.
    """

    jurisdiction = serializers.ChoiceField(choices=sorted(FILTERS), required=False)
    modality = serializers.ChoiceField(choices=Modality.values, required=False)


class ProvidersQuery(serializers.Serializer[Any]):
    """As `CatalogueQuery`, without the modality."""

    jurisdiction = serializers.ChoiceField(choices=sorted(FILTERS), required=False)
