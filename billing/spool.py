"""Outcomes that could not be settled, kept on disk until they can: one file each, fsynced, checksummed.

A file is claimed by renaming it, so that several workers and `maintain` may replay one folder. Settling is idempotent:
a file whose generation was settled after all does no harm. What cannot be replayed is set aside and reported.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.db import InterfaceError, OperationalError

from . import frozen
from .models import Generation

logger = logging.getLogger(__name__)

SUFFIX = ".outcome"
CLAIMED = ".claimed"
POISON = ".poison"
LONGEST_CLAIM_SECONDS = 300.0
Settle = Callable[[Generation, int | None], object]


class SpoolFailed(OSError):
    """The outcome could not be kept: neither the database nor the disk has it."""


def put(generation: Generation, quota_region: int | None) -> None:
    """Keeps an outcome. It is on the disk when this returns. Raises SpoolFailed."""
    content = frozen.freeze(generation, quota_region)
    folder = Path(settings.GATEWAY_SPOOL_DIR)
    path = folder / f"{generation.pk.hex}{SUFFIX}"
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(_checksum(content) + b"\n" + content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        _sync_folder(folder)
    except OSError as error:
        raise SpoolFailed(f"cannot spool {generation.public_id}: {error.strerror}") from error
    logger.error("%s could not be settled now and waits in the spool", generation.public_id)


def replay(settle: Settle) -> int:
    """Settles what waits, and returns how much of it. Stops at the first sign that the database is away."""
    folder = Path(settings.GATEWAY_SPOOL_DIR)
    settled = 0
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ():
        claim = path.with_suffix(f".{os.getpid()}{CLAIMED}")
        try:
            path.rename(claim)
        except FileNotFoundError:
            continue  # somebody else has it
        try:
            settled += _replay_one(claim, path, settle)
        except (OperationalError, InterfaceError):
            claim.rename(path)
            break
    return settled


def reclaim() -> None:
    """Gives back what a process claimed and died with, and what has been claimed for longer than a replay takes."""
    folder = Path(settings.GATEWAY_SPOOL_DIR)
    for claim in folder.glob(f"*{CLAIMED}") if folder.is_dir() else ():
        generation, pid = claim.name.split(".")[:2]
        try:
            abandoned = not _is_alive(int(pid)) or time.time() - claim.stat().st_ctime > LONGEST_CLAIM_SECONDS
            if abandoned:
                claim.rename(folder / f"{generation}{SUFFIX}")
        except FileNotFoundError:
            continue  # it has been settled meanwhile


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def poisoned() -> list[Path]:
    """What has been set aside for a person to look at."""
    folder = Path(settings.GATEWAY_SPOOL_DIR)
    return sorted(folder.glob(f"*{POISON}")) if folder.is_dir() else []


def _replay_one(claim: Path, path: Path, settle: Settle) -> bool:
    """Whether it was settled; else it is set aside. Raises what says that the database is away."""
    try:
        generation, quota_region = frozen.thaw(_verified(claim.read_bytes()))
        settle(generation, quota_region)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        logger.exception("the spooled outcome %s cannot be settled and is set aside", path.name)
        claim.rename(path.with_suffix(POISON))
        return False
    claim.unlink()
    _sync_folder(path.parent)
    return True


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _verified(stored: bytes) -> bytes:
    checksum, _, content = stored.partition(b"\n")
    if checksum != _checksum(content):
        raise frozen.BadFrozenGeneration("the checksum does not fit")
    return content


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
