"""Turns among fully tied routes, counted in the database: even across all workers, whoever asks when."""

from django.db import connection

from .models import Rotation

_TABLE = Rotation._meta.db_table
NEXT_TURN = f"""
    INSERT INTO {_TABLE} (canonical_id, turns) VALUES (%s, 1)
    ON CONFLICT (canonical_id) DO UPDATE SET turns = {_TABLE}.turns + 1
    RETURNING turns
"""  # noqa: S608  # the table of our own model


def next_turn(canonical_id: str) -> int:
    """The next number of a model's counter, given to one request only."""
    with connection.cursor() as cursor:
        cursor.execute(NEXT_TURN, [canonical_id])
        turn: int = cursor.fetchone()[0]
    return turn
