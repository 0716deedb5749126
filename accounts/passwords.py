"""Hashes passwords in a thread, because that takes most of a second."""

import functools

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from gevent import monkey
from gevent.threadpool import ThreadPool

from gateway.db.pool import release_all
from gateway.errors import WorkerBusy

THREADS = 1  # in each worker, so that requests keep the other cores
WAITING = 8  # passwords that may wait for the thread; the last one waits for some seconds


class ThreadedHasher(PBKDF2PasswordHasher):
    """Runs Django's hasher in a thread: hashlib releases the GIL.

    Raises WorkerBusy if too many passwords wait.
    """

    _under_way = 0

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        if ThreadedHasher._under_way > WAITING:
            raise WorkerBusy("Sign-in is busy, and your password was not checked. Try again in a few seconds.")
        release_all()
        if not monkey.is_module_patched("threading"):
            return super().encode(password, salt, iterations)  # a management command has nothing else to do meanwhile
        ThreadedHasher._under_way += 1
        try:
            hashed: str = _threads().apply(super().encode, (password, salt, iterations))
        finally:
            ThreadedHasher._under_way -= 1
        return hashed


@functools.cache
def _threads() -> ThreadPool:
    return ThreadPool(THREADS)
