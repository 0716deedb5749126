"""Shares of a worker's file descriptors, in fifths: two for clients, two for upstreams, one idle."""

import resource

RESERVED = 100  # for the database, Redis, the log, the spool and the worker itself


def raise_limit() -> None:
    """Raises the limit of open files to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def fifths(count: int) -> int:
    """Fifths of the descriptors, at least one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (soft - RESERVED) * count // 5)
