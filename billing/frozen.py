"""A generation on its way to being settled, as bytes: what the spool and the checkpoints keep.

Everything that the bill depends on is in the record itself, so that settling later, elsewhere, gives the same bill.
"""

from typing import Any

import orjson
from django.core.exceptions import ValidationError
from django.db.models import Field

from .models import Generation

_DECIDED_BY_SETTLING = ("created_at", "balance_after")
_FIELDS = {
    field.attname: field for field in Generation._meta.concrete_fields if field.attname not in _DECIDED_BY_SETTLING
}


class BadFrozenGeneration(ValueError):
    """Bytes that are no frozen generation, or one that lacks what this version of the product must know."""


def freeze(generation: Generation, quota_region: int | None) -> bytes:
    """JSON of the record's fields, decimals as text, and of the region whose daily quota it counts against."""
    fields = {name: getattr(generation, name) for name in _FIELDS}
    return orjson.dumps({"generation": fields, "quota_region": quota_region}, default=str)


def thaw(frozen: bytes) -> tuple[Generation, int | None]:
    """The unsaved record, and the region of its quota. Raises BadFrozenGeneration."""
    try:
        content = orjson.loads(frozen)
        stored: dict[str, Any] = content["generation"]
        return Generation(**{name: _read(field, stored) for name, field in _FIELDS.items()}), content["quota_region"]
    except (ValueError, LookupError, TypeError, AttributeError, ValidationError) as error:
        raise BadFrozenGeneration(f"not a frozen generation: {error!r}") from error


def _read(field: "Field[Any, Any]", stored: dict[str, Any]) -> Any:
    """What was frozen before an upgrade lacks the columns that it brought; those may be null or have a default."""
    if field.attname not in stored and not field.primary_key and (field.null or field.has_default()):
        return field.get_default()
    return field.to_python(stored[field.attname])
