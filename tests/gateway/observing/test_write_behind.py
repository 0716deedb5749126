"""Requests leave values in memory, which the beat writes."""

from operator import add

import pytest
from django.db import IntegrityError, OperationalError

from gateway.observing.write_behind import WriteBehind


def test_a_batch_that_meets_an_outage_is_tried_again_as_it_was_before_newer_notes() -> None:
    tried: list[dict[str, int]] = []

    def write(batch: dict[str, int]) -> None:
        tried.append(batch)
        if len(tried) == 2:
            raise OperationalError("away")

    noted: WriteBehind[str, int] = WriteBehind(write, join=add, at_once=2)
    for name in ("a", "b", "c", "a"):
        noted.note(name, 1)
    with pytest.raises(OperationalError):
        noted.flush()
    noted.note("c", 5)
    noted.flush()
    assert tried == [{"a": 2, "b": 1}, {"c": 1}, {"c": 1}, {"c": 5}]


def test_a_batch_that_is_refused_is_let_go() -> None:
    tried = []

    def write(batch: dict[str, int]) -> None:
        tried.append(batch)
        if "a" in batch:
            raise IntegrityError("never")

    noted: WriteBehind[str, int] = WriteBehind(write)
    noted.note("a", 1)
    with pytest.raises(IntegrityError):
        noted.flush()
    noted.note("b", 1)
    noted.flush()
    assert tried == [{"a": 1}, {"b": 1}]


def test_without_room_a_value_of_a_new_key_is_only_counted() -> None:
    written: list[dict[str, int]] = []
    noted: WriteBehind[str, int] = WriteBehind(written.append, most=2)
    assert [noted.note(name, 1) for name in ("a", "b", "c", "a")] == [True, True, False, True]
    assert (noted.left_out(), noted.left_out()) == (1, 0)
    noted.flush()
    assert written == [{"a": 1, "b": 1}]


def test_notes_that_come_while_it_writes_wait_for_the_next_flush() -> None:
    written = []

    def write(batch: dict[str, int]) -> None:
        written.append(batch)
        noted.note("late", 1)

    noted: WriteBehind[str, int] = WriteBehind(write)
    noted.note("a", 1)
    noted.flush()
    assert written == [{"a": 1}]
