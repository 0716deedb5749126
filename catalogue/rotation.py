"""Turns among fully tied routes, counted in the database: even across all workers, whoever asks when."""

import logging
import random

from django.db import InterfaceError, OperationalError, connection

from .models import Rotation

logger = logging.getLogger(__name__)

_TABLE = Rotation._meta.db_table
NEXT_TURN = f"""
    INSERT INTO {_TABLE} (canonical_id, turns) VALUES (%s, 1)
    ON CONFLICT (canonical_id) DO UPDATE SET turns = {_TABLE}.turns + 1
    RETURNING turns
"""  # noqa: S608  # the table of our own model
ANY_TURN = 2**31

_is_stuck = False


def next_turn(canonical_id: str) -> int:
    """The next number of a model's counter, given to one request only; any where the counter cannot be had in time.

    On a busy SQLite, above all: chance is fair too, and no request should fail for the evenness of others.
    """
    try:
        turn = _counted(canonical_id)
    except (OperationalError, InterfaceError) as error:
        _note(is_stuck=True, because=error)
        return random.randrange(ANY_TURN)  # noqa: S311  # spreads load, guards nothing
    _note(is_stuck=False)
    return turn


def _counted(canonical_id: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(NEXT_TURN, [canonical_id])
        turn: int = cursor.fetchone()[0]
    return turn


def _note(*, is_stuck: bool, because: Exception | None = None) -> None:
    """A line for the first that had to be left to chance, and none until turns have been counted again."""
    global _is_stuck  # noqa: PLW0603  # one worker, one line
    if is_stuck and not _is_stuck:
        logger.warning("turns among tied routes are left to chance, since they cannot be counted: %s", because)
    _is_stuck = is_stuck
