"""Implements `verify_ledger`: recomputes balances from entries, entries from records, and records from their usage."""

import gc
import multiprocessing
import os
import signal
import sys
import time
from argparse import ArgumentTypeError
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import astuple
from itertools import islice
from typing import Any, ClassVar
from uuid import UUID

from django.core.management.base import CommandError, CommandParser
from django.db import Error, connections
from django.db.models import Sum

from accounts.management.arguments import account_from
from billing.models import Wallet
from billing.usage import verify
from billing.usage.verify import Verification
from gateway.management.base import OperatorCommand, explain
from inference.dialects import read_usage

BAR_WIDTH = 40
LINE_START = "\r\x1b[K"  # clears the line on a terminal
MOST_JOBS = 4  # by default, so that requests being served get their share of the database's cores
MOST_ASKED_JOBS = 64  # each process uses a database connection
WORTH_JOBS = 100_000  # entries, from which several processes are faster


class Command(OperatorCommand):
    only_reads = True
    help = (
        "Checks that ledger, wallets, records and usage by day agree. Exits 1 and lists each mismatch if they do not."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        accounts = parser.add_mutually_exclusive_group()
        accounts.add_argument("--account", metavar="ACCOUNT", help="only this account (name or id)")
        accounts.add_argument("--start-at", metavar="ACCOUNT", help="leave out the accounts before this one")
        parser.add_argument(
            "--jobs",
            metavar="N",
            type=_jobs,
            help=f"processes at work on parts of all accounts; default: one for each core, {MOST_JOBS} at most, where "
            f"there are {WORTH_JOBS:,} entries",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        account_id, start_at = (
            None if options[name] is None else account_from(options[name]).pk for name in ("account", "start_at")
        )
        chosen = Wallet.objects.all() if account_id is None else Wallet.objects.filter(pk=account_id)
        chosen = chosen if start_at is None else chosen.filter(pk__gte=start_at)
        total: int = chosen.aggregate(total=Sum("seq"))["total"] or 0
        jobs: int = options["jobs"] or (min(MOST_JOBS, os.cpu_count() or 1) if total >= WORTH_JOBS else 1)
        bar = ProgressBar(self.stderr, total)
        gc.freeze()  # else collections would scan all loaded objects each time, which took a quarter of the run
        if jobs == 1 or account_id is not None:
            findings = verify.verify(account_id, read_usage, start_at=start_at, report=bar.show)
        else:
            findings = verify_parts(start_at, jobs, bar.show)
        failed = False
        try:
            for found in findings:
                bar.clear()
                if isinstance(found, Verification):
                    self.stdout.write(
                        f"checked {found.accounts} accounts, {found.entries} ledger entries, "
                        f"{found.generations} generations: {found.mismatches} mismatches"
                    )
                else:
                    failed = True
                    self.stderr.write(found)
        except (KeyboardInterrupt, Error, BrokenExecutor) as error:
            bar.clear()
            if isinstance(error, Error):
                why = explain(error)
            else:
                why = "Stopped" if isinstance(error, KeyboardInterrupt) else "One of the processes was killed"
            if bar.account_id is None:
                raise CommandError(why) from error
            raise CommandError(f"{why} (go on with --start-at {bar.account_id})") from error
        if failed:
            sys.exit(1)


def _jobs(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_ASKED_JOBS:
        raise ArgumentTypeError(f"a whole number from 1 to {MOST_ASKED_JOBS}")
    return int(text)


class ProgressBar:
    """Draws a progress bar, by ledger entries, once a second if stderr is a terminal."""

    def __init__(self, stderr: Any, total: int) -> None:
        self.account_id: UUID | None = None  # all accounts before this one are done
        self._stderr = stderr if stderr.isatty() else None
        self._drawn_at = 0.0
        self._total = total or 1

    def show(self, account_id: UUID | None, result: Verification) -> None:
        """Draws the bar, unless it was drawn less than a second ago."""
        self.account_id = account_id
        if self._stderr is None or time.monotonic() - self._drawn_at < 1:
            return
        self._drawn_at = time.monotonic()
        done = min(1.0, result.entries / self._total)
        bar = ("#" * round(done * BAR_WIDTH)).ljust(BAR_WIDTH)
        self._stderr.write(f"{LINE_START}[{bar}] {done:4.0%} of {self._total:,} ledger entries", ending="")
        self._stderr.flush()

    def clear(self) -> None:
        """Clears the bar for a line of text."""
        if self._stderr is not None:
            self._stderr.write(LINE_START, ending="")
            self._drawn_at = 0.0


def verify_parts(
    start_at: UUID | None, jobs: int, report: Callable[[UUID | None, Verification], object]
) -> Iterator[str | Verification]:
    """Verifies all accounts in several processes, and yields their findings in the order of the accounts."""
    forking = multiprocessing.get_context("fork")
    entries = forking.Value("q", 0)
    whole, parts = Verification(), verify.parts(start_at)
    for connection in connections.all():
        connection.close()
        if getattr(connection, "pool", None) is not None:  # there is one if the command is called as a function
            connection.close_pool()  # type: ignore[attr-defined]
    with ProcessPoolExecutor(jobs, forking, _Part.begin, (entries,)) as pool:
        pool.submit(gc.freeze).result()  # forks all processes before this one opens a connection again, for `parts`
        waiting = deque(_submitted(pool, islice(parts, 2 * jobs)))
        try:
            while waiting:
                first, part = waiting.popleft()
                report(first, Verification(entries=entries.value))
                while not wait([part], timeout=1).done:
                    report(first, Verification(entries=entries.value))
                mismatches, counted = part.result()
                yield from mismatches
                whole = Verification(*map(sum, zip(astuple(whole), astuple(counted), strict=True)))
                waiting.extend(_submitted(pool, islice(parts, 1)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    yield whole


_Submitted = tuple[UUID | None, Future[tuple[list[str], Verification]]]


def _submitted(pool: ProcessPoolExecutor, parts: Iterable[tuple[UUID | None, UUID | None]]) -> Iterator[_Submitted]:
    for first, before in parts:
        yield first, pool.submit(_Part.verify, first, before)


class _Part:
    """Verifies a part of the accounts in one of the processes."""

    entries: ClassVar[Any]  # the shared count of entries
    _seen = 0

    @classmethod
    def begin(cls, entries: Any) -> None:
        """Prepares a process. Ctrl-C only interrupts a process at work; the parent ends those that wait."""
        cls.entries = entries
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    @classmethod
    def verify(cls, first: UUID | None, before: UUID | None) -> tuple[list[str], Verification]:
        """Verifies a part, and returns its mismatches and the counts of what was checked."""
        part, mismatches, counted = cls(), list[str](), Verification()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for found in verify.verify(None, read_usage, start_at=first, before=before, report=part.report):
                if isinstance(found, Verification):
                    counted = found
                else:
                    mismatches.append(found)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        part.report(None, counted)
        return mismatches, counted

    def report(self, _account_id: UUID | None, result: Verification) -> None:
        with self.entries.get_lock():
            self.entries.value += result.entries - self._seen
        self._seen = result.entries
