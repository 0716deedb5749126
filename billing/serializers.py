"""The query of `GET /v1/generations`: nothing is clamped and nothing guessed."""

import re
from datetime import datetime
from typing import Any

from rest_framework import serializers

from gateway.rfc3339 import InvalidMoment, parse

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000


class MomentField(serializers.Field[datetime, str, str, Any]):
    """An RFC 3339 date-time with an offset, as a moment in UTC."""

    def __init__(self, *, round_up: bool = False, **options: Any) -> None:
        self._round_up = round_up
        super().__init__(**options)

    def to_internal_value(self, data: str) -> datetime:
        try:
            return parse(data, round_up=self._round_up)
        except InvalidMoment as error:
            raise serializers.ValidationError(str(error)) from None


class LimitField(serializers.Field[int, str, int, Any]):
    """A count from 1, in plain digits. DRF's own would also be ` 5 `, `1_0`, `5.0` and other scripts' digits."""

    def __init__(self, *, maximum: int = MAX_LIMIT, **options: Any) -> None:
        self._maximum = maximum
        super().__init__(**options)

    def to_internal_value(self, data: str) -> int:
        if not re.fullmatch(r"[0-9]{1,4}", data) or not 1 <= int(data) <= self._maximum:
            raise serializers.ValidationError(f"must be a whole number from 1 to {self._maximum}.")
        return int(data)


class CursorField(serializers.Field[str, str, str, Any]):
    """Any text: whoever reads the listing knows its cursors."""

    def to_internal_value(self, data: str) -> str:
        return data


class GenerationsQuery(serializers.Serializer[Any]):
    """`since` and `until` are inclusive; `after` is the `next_cursor` of the page before."""

    since = MomentField(required=False, round_up=True)
    until = MomentField(required=False)
    limit = LimitField(default=DEFAULT_LIMIT)
    after = CursorField(required=False)
