"""Reads when a key expires, as API clients say it."""

from datetime import datetime
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from gateway.edge.rfc3339 import InvalidMoment, parse

from .keys import LIFETIMES, end_of


class ExpiryField(serializers.Field[Any, Any, Any, Any]):
    """Accepts a future RFC 3339 date-time, a lifetime such as "90d", or "never". Returns a moment in UTC, or None."""

    def to_internal_value(self, data: Any) -> datetime | None:
        if isinstance(data, str) and data in LIFETIMES:
            return end_of(data)
        try:
            moment = parse(data if isinstance(data, str) else "")
        except InvalidMoment:
            words = ", ".join(LIFETIMES)
            raise serializers.ValidationError(f"must be an RFC 3339 date-time or one of {words}.") from None
        if moment <= timezone.now():
            raise serializers.ValidationError("must be in the future.")
        return moment
