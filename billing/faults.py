"""Whose fault it is that a settlement failed: the database's, and settling again may help, or the record's own."""

from django.db import DataError, Error, IntegrityError

_THE_RECORDS = (DataError, IntegrityError)


def is_the_databases(error: BaseException) -> bool:
    """Away, locked, read-only, full, not migrated yet: nothing that a person could mend in the record."""
    return isinstance(error, Error) and not isinstance(error, _THE_RECORDS)


def in_one_line(error: BaseException) -> str:
    """The first line of what a database says, which may be many."""
    return str(error).strip().split("\n", 1)[0]
