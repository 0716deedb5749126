"""Two changes run at once on real connections: each test holds one in its transaction while the other waits for it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import connection, transaction
from pytest_django import Settings

from accounts.models import Account
from aliases import changes
from aliases.models import Alias, AliasEvent
from aliases.targets import Target
from gateway.errors import AliasExists, AliasLimitReached, AliasNotFound, InvalidAliasTarget
from tests.factories import new_account
from tests.locks import waiting_sessions
from tests.patience import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
]
ECHO, CHUNKS = Target("sim", "test/echo", "FRPAR"), Target("sim", "test/chunks", "DEFRA")
THREADS = 8


@pytest.fixture
def account() -> Account:
    return new_account()


def in_thread(pool: ThreadPoolExecutor, act: Callable[[], object]) -> "Future[object]":
    def run() -> object:
        try:
            return act()
        finally:
            connection.close()  # this thread's own

    return pool.submit(run)


@contextmanager
def ahead_of(second: Callable[[], object]) -> Iterator["Future[object]"]:
    """Commits the block's changes only when `second`, on another connection, waits for their lock."""
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            future: Future[object] = Future()
            yield future
            other = in_thread(pool, second)
            assert eventually(lambda: len(waiting_sessions()) == 1)
        error = other.exception(10)
        if error is None:
            future.set_result(other.result())
        else:
            future.set_exception(error)


def names() -> list[str]:
    return list(Alias.objects.values_list("name", flat=True))


def event_types() -> list[str]:
    """Returns the events' types, oldest first."""
    return list(AliasEvent.objects.order_by("created_at", "id").values_list("event_type", flat=True))


def test_of_two_creates_of_one_name_the_second_is_refused(account: Account) -> None:
    with ahead_of(lambda: changes.create(account.pk, "fast", CHUNKS)) as second:
        changes.create(account.pk, "fast", ECHO)
    with pytest.raises(AliasExists):
        second.result()
    assert (Alias.objects.get().target, event_types()) == (str(ECHO), ["created"])


def test_the_last_slot_is_given_once(account: Account, settings: Settings) -> None:
    settings.GATEWAY_ALIAS_LIMIT = 1
    with ahead_of(lambda: changes.create(account.pk, "two", ECHO)) as second:
        changes.create(account.pk, "one", ECHO)
    with pytest.raises(AliasLimitReached):
        second.result()
    assert names() == ["one"]


def test_a_rename_of_what_is_being_deleted_finds_nothing(account: Account) -> None:
    changes.create(account.pk, "fast", ECHO)
    with ahead_of(lambda: changes.change(account.pk, "fast", name="quick")) as rename:
        changes.delete(account.pk, "fast")
    with pytest.raises(AliasNotFound):
        rename.result()
    assert (names(), event_types()) == ([], ["created", "deleted"])


def test_a_delete_of_what_is_being_renamed_finds_nothing(account: Account) -> None:
    changes.create(account.pk, "fast", ECHO)
    with ahead_of(lambda: changes.delete(account.pk, "fast")) as deletion:
        changes.change(account.pk, "fast", name="quick")
    with pytest.raises(AliasNotFound):
        deletion.result()
    assert (names(), event_types()) == (["quick"], ["created", "renamed"])


def test_a_rename_to_a_name_that_is_being_created_is_refused(account: Account) -> None:
    changes.create(account.pk, "fast", ECHO)
    with ahead_of(lambda: changes.change(account.pk, "fast", name="quick", target=CHUNKS)) as rename:
        changes.create(account.pk, "quick", ECHO)
    with pytest.raises(AliasExists):
        rename.result()
    assert names() == ["fast", "quick"]
    assert Alias.objects.get(name="fast").target == str(ECHO)


def test_a_create_of_a_name_that_is_being_given_up_succeeds(account: Account) -> None:
    changes.create(account.pk, "fast", ECHO)
    with ahead_of(lambda: changes.create(account.pk, "fast", CHUNKS)) as creation:
        changes.change(account.pk, "fast", name="quick")
    assert isinstance(creation.result(), Alias)
    assert names() == ["fast", "quick"]


def test_two_changes_of_one_alias_follow_each_other(account: Account) -> None:
    changes.create(account.pk, "fast", ECHO)
    with ahead_of(lambda: changes.change(account.pk, "fast", target=CHUNKS)) as repoint:
        changes.change(account.pk, "fast", target=Target("sim", "test/echo", "DEFRA"))
    assert isinstance(repoint.result(), Alias)
    assert Alias.objects.get().target == str(CHUNKS)
    newest = AliasEvent.objects.all()[0]
    assert (newest.old_target, newest.new_target) == ("sim/test/echo/DEFRA", str(CHUNKS))


def test_a_repoint_without_a_locode_does_not_leave_a_place_that_is_just_being_taken(account: Account) -> None:
    changes.create(account.pk, "fast", Target("sim", "test/worldwide", "global"))
    unplaced = Target("sim", "test/worldwide", "global", states_locode=False)
    with ahead_of(lambda: changes.change(account.pk, "fast", target=unplaced)) as repoint:
        changes.change(account.pk, "fast", target=CHUNKS)
    with pytest.raises(InvalidAliasTarget):
        repoint.result()
    assert Alias.objects.get().target == str(CHUNKS)


def test_a_page_does_not_delete_another_alias_that_took_the_name(account: Account) -> None:
    first = changes.create(account.pk, "fast", ECHO)
    with ahead_of(lambda: changes.delete(account.pk, "fast", expected_id=first.pk)) as deletion:
        changes.change(account.pk, "fast", name="quick")
        changes.create(account.pk, "fast", CHUNKS)
    with pytest.raises(AliasNotFound):
        deletion.result()
    assert names() == ["fast", "quick"]


def test_accounts_do_not_wait_for_each_other(account: Account) -> None:
    other = new_account()
    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        changes.create(account.pk, "fast", ECHO)
        assert in_thread(pool, lambda: changes.create(other.pk, "fast", ECHO)).exception(10) is None


def test_many_creates_at_once_fill_the_slots_and_no_more(account: Account) -> None:
    start = threading.Barrier(THREADS)

    def create(number: int) -> object:
        start.wait(10)
        return changes.create(account.pk, f"n{number}", ECHO)

    with ThreadPoolExecutor(THREADS) as pool:
        attempts = [in_thread(pool, lambda number=number: create(number)) for number in range(THREADS)]  # type: ignore[misc]
        errors = [attempt.exception(20) for attempt in attempts]
    assert [type(error) for error in errors if error] == [AliasLimitReached] * 3
    assert len(names()) == len(event_types()) == 5
