"""Keeps requests that could not be settled on disk until they can be: one file each, fsynced, with a checksum.

A file is claimed by renaming it, so that several workers and `maintain` may replay one folder. Settling is idempotent:
a file whose request was settled after all does no harm. A file that cannot be replayed is set aside and reported.
"""

import contextlib
import hashlib
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import DataError, Error, IntegrityError

from gateway.db.outages import Outage

from ..models import Generation
from .unsettled import BadSerializedGeneration, UnsettledGeneration, deserialized

logger = logging.getLogger(__name__)
_outage = Outage("what is in the spool cannot be settled now", logger.warning)

SUFFIX = ".outcome"
PARTIAL = ".partial"
CLAIMED = ".claimed"
POISON = ".poison"
LONGEST_CLAIM_SECONDS = 300.0
# Faults after which a replay stops. One locked wallet must not hold up the others; without a database all files fail.
MOST_FAULTS = 3
Settle = Callable[[Generation, int | None], object]


class SpoolFailed(OSError):
    """The request could not be spooled: neither the database nor the disk has it."""


def is_database_fault(error: BaseException) -> bool:
    """Tells whether the database is at fault (away, locked, read-only, full, not migrated) rather than the record."""
    return isinstance(error, Error) and not isinstance(error, DataError | IntegrityError)


def first_line_of(error: BaseException) -> str:
    """Returns the first line of an error's text, which may have several if it comes from a database."""
    return str(error).strip().split("\n", 1)[0]


def put(unsettled: UnsettledGeneration) -> None:
    """Spools a request. Its file is safely on disk when this returns. Raises SpoolFailed."""
    content = unsettled.serialized()
    folder = Path(settings.GATEWAY_SPOOL_DIR)
    path = folder / f"{unsettled.figures.id.hex}{SUFFIX}"
    partial = path.with_suffix(f".{os.getpid()}{PARTIAL}")
    try:
        if not folder.is_dir():  # a new folder is fsynced into its parent before a file is put into it
            folder.mkdir(parents=True, exist_ok=True)
            _sync_folder(folder.parent)
        with partial.open("wb") as file:
            file.write(_checksum(content) + b"\n" + content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        _sync_folder(folder)
    except OSError as error:
        with contextlib.suppress(OSError):  # on a full disk, the partial file would keep it full
            partial.unlink()
        raise SpoolFailed(f"cannot spool {unsettled.public_id}: {error.strerror}") from error
    logger.error("%s could not be settled now and waits in the spool", unsettled.public_id)


def holds(id_: UUID) -> bool:
    """Tells whether this machine's spool has the outcome of a request, waiting, claimed or set aside."""
    return next(Path(settings.GATEWAY_SPOOL_DIR).glob(f"{id_.hex}.*"), None) is not None


def replay(settle: Settle) -> int:
    """Settles the waiting files, and returns how many were settled. Stops if the database seems to be away."""
    settled = faults = 0
    waiting = _files(SUFFIX)
    random.shuffle(waiting)  # so that files that cannot be settled now are not always the first to be tried
    for path in waiting:
        claim = path.with_suffix(f".{os.getpid()}{CLAIMED}")
        try:
            path.rename(claim)
        except FileNotFoundError:
            continue  # another process has claimed it
        try:
            settled += _replay_one(claim, path, settle)
        except (Error, OSError) as error:
            with contextlib.suppress(FileNotFoundError):
                claim.rename(path)
            faults += 1
            _outage.failed(error)
            if faults == MOST_FAULTS:
                break
    if not faults:
        _outage.worked()
    return settled


def reclaim() -> None:
    """Releases the files claimed by processes that died, and those claimed for longer than a replay takes.

    Do not call it while this process replays: a claim with this process's id counts as left by an earlier process.
    """
    for claim in _files(CLAIMED):
        with contextlib.suppress(FileNotFoundError):  # the file has been settled meanwhile
            if _is_abandoned(claim):
                claim.rename(claim.with_name(f"{claim.name.partition('.')[0]}{SUFFIX}"))
    # A partial file is left if a process was killed while it wrote; its client got no answer. Only the age counts here:
    # the writer may be in another container, where process ids differ, and no write takes that long.
    for partial in _files(PARTIAL):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - partial.stat().st_ctime > LONGEST_CLAIM_SECONDS:
                partial.unlink()


def lengths() -> dict[str, float]:
    """Counts the files that are `waiting`, `claimed` and `poison` (set aside)."""
    folder = Path(settings.GATEWAY_SPOOL_DIR)
    found = Counter(path.suffix for path in folder.iterdir()) if folder.is_dir() else Counter[str]()
    return {state: found[suffix] for state, suffix in (("waiting", SUFFIX), ("claimed", CLAIMED), ("poison", POISON))}


def poisoned() -> list[Path]:
    """Returns the files that were set aside for a person to look at."""
    return _files(POISON)


def _files(suffix: str) -> list[Path]:
    folder = Path(settings.GATEWAY_SPOOL_DIR)
    return sorted(folder.glob(f"*{suffix}")) if folder.is_dir() else []


def _is_abandoned(claim: Path) -> bool:
    claimant = claim.name.split(".")[1]
    if not claimant.isdecimal() or int(claimant) == os.getpid():
        return True
    return not _is_alive(int(claimant)) or time.time() - claim.stat().st_ctime > LONGEST_CLAIM_SECONDS


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _replay_one(claim: Path, path: Path, settle: Settle) -> bool:
    """Settles a claimed file, or sets it aside and returns False. Raises errors that are not the record's fault."""
    try:
        generation, quota_region = deserialized(_verified(claim.read_bytes()))
        settle(generation, quota_region)
    except Exception as error:
        if is_database_fault(error) or isinstance(error, OSError):
            raise
        logger.error("the spooled outcome %s cannot be settled and is set aside: %r", path.name, error)  # noqa: TRY400
        claim.rename(path.with_suffix(POISON))
        return False
    claim.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _verified(stored: bytes) -> bytes:
    checksum, _, content = stored.partition(b"\n")
    if checksum != _checksum(content):
        raise BadSerializedGeneration("the checksum does not fit")
    return content


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
