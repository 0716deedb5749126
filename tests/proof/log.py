"""Keeps a log in tests."""

from billing.models import Generation
from proof import sequencer
from proof.log_key import LogKey

ORIGIN = "gateway.example/log"
KEY = LogKey.new(ORIGIN)


def logged(record: Generation) -> Generation:
    """Appends all entries to the log of the tests, and returns the record."""
    while sequencer.advance_with(KEY):
        pass
    return record
