"""Holds functions that run in Django: `manage.py shell` of the measured gateway calls them, on its database.

Times in the database are those of its driver: execution, transfer, and two trips through a socket.
"""

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from accounts.models import ApiKey, Membership, User
from aliases.models import Alias
from aliases.stats import rows_of
from billing import records_api
from billing.ledger import booking
from billing.models import Generation
from billing.usage import rollups
from gateway.ids import uuid7
from tests.billing import records

START_SECONDS = 2.0  # for processes to start and connect


def listing(key: str, *, limit: int, page: int, repeats: int) -> None:
    """Prints the cursor of a page of the key's records (null: the first), and the time the database takes for it."""
    asked = records_api.Listing(ApiKey.objects.get(pk=key).account_id, UUID(key))
    before = None
    if page > 1:
        last = records_api.newest_first(asked, None)[(page - 1) * limit - 1]
        before = asked.cursor(last)
    took = _database_ms(lambda: records_api.page_of(asked, limit=limit, before=before), repeats)
    print(json.dumps({"after": before, "database_ms": took}))


def alias_statistics(alias: str, *, days: int, repeats: int) -> None:
    """Prints the time the database takes for an alias's statistics."""
    found = Alias.objects.get(pk=alias)
    today = timezone.now().date()
    print(json.dumps({"database_ms": _database_ms(lambda: rows_of(found, days=days, today=today), repeats)}))


def session(account: str) -> None:
    """Prints the session cookie of a new member of the account, by its name."""
    browser, person = Client(), User.objects.create_user("member@bench.example")
    Membership.objects.create(account_id=UUID(account), user=person)
    browser.force_login(person)
    name = settings.SESSION_COOKIE_NAME
    print(json.dumps({name: browser.cookies[name].value}))


def forget(account: str) -> None:
    """Drops the account's rollups, whose watermark may have passed the records before they existed."""
    rollups.drop_sums(UUID(account))
    print("null")


def roll_up() -> None:
    """Rolls up a bounded number of records, as `maintain` does, and prints how many."""
    print(rollups.advance(rollups.RECORDS_PER_MAINTENANCE))


def commit(processes: int, seconds: float) -> None:
    """Prints the settlements per second of processes that commit one by one: on an account each, then on one."""
    served = [records.serve(records.open_for(name=f"Committer {number}")) for number in range(processes)]
    connections.close_all()
    connection.close_pool()  # type: ignore[attr-defined]  # its threads are in this process alone
    rates = []
    for each in (served, served[:1] * processes):
        with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
            start = time.monotonic() + START_SECONDS
            counts = list(pool.map(_commit, each, repeat(start), repeat(start + seconds)))
        rates.append(sum(counts) / seconds)
    print(json.dumps(rates))


def _commit(served: Generation, start: float, end: float) -> int:
    """Settles the same figures repeatedly with new ids, between two times, and returns how often."""
    connection.ensure_connection()
    time.sleep(max(0.0, start - time.monotonic()))
    count = 0
    while time.monotonic() < end:
        served.pk = uuid7()
        booking.book(served, using="default")
        count += 1
    return count


def _database_ms(read: Callable[[], Any], repeats: int) -> float:
    read()
    return statistics.median(_once(read) for _ in range(repeats))


def _once(read: Callable[[], Any]) -> float:
    taken = 0.0

    def timed(execute: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal taken
        start = time.perf_counter()
        try:
            return execute(*arguments)
        finally:
            taken += (time.perf_counter() - start) * 1000

    with connection.execute_wrapper(timed):
        read()
    return taken
