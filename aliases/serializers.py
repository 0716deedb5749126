"""Reads and writes the objects of the alias API (docs/api.md#aliases)."""

from typing import Any

from rest_framework import serializers

from catalogue.routing.model_ids import ALIAS_NAME, ALIAS_RULE
from gateway.edge.tables import LimitField
from gateway.errors import InvalidAliasName

from .models import Alias, AliasEvent


def alias_name(value: Any) -> str:
    """Checks an alias's own name, which has no `alias/` in front, and returns it in lower case.

    Raises InvalidAliasName.
    """
    # Only ASCII is accepted: in lower case the Kelvin sign, for example, becomes a plain `k`.
    name = value.lower() if isinstance(value, str) and value.isascii() else ""
    if not ALIAS_NAME.fullmatch(name):
        raise InvalidAliasName.of_field("name", f"must have {ALIAS_RULE}.")
    return name


class AliasSerializer(serializers.ModelSerializer[Alias]):
    """Writes the Alias object."""

    class Meta:
        model = Alias
        fields = (
            "id",
            "name",
            "full_name",
            "provider",
            "canonical_id",
            "locode",
            "target",
            "fallbacks",
            "created_at",
            "updated_at",
        )


class AliasEventSerializer(serializers.ModelSerializer[AliasEvent]):
    """Writes the AliasEvent object."""

    class Meta:
        model = AliasEvent
        fields = (
            "id",
            "event_type",
            "created_at",
            "old_name",
            "new_name",
            "old_target",
            "new_target",
            "old_fallbacks",
            "new_fallbacks",
        )

    def to_representation(self, instance: AliasEvent) -> dict[str, Any]:
        represented = super().to_representation(instance)
        return {name: value for name, value in represented.items() if value is not None}


class StatsQuery(serializers.Serializer[Any]):
    """Reads how many UTC days to show, today included."""

    days = LimitField(maximum=365, default=30)


class HistoryQuery(serializers.Serializer[Any]):
    """Reads the number of events."""

    limit = LimitField(maximum=200, default=50)
