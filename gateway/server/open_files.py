"""Divides a worker's file descriptors: two fifths for clients, two for upstreams, one for idle connections."""

import resource

RESERVED = 100  # for the database, Redis, the log, the spool and the worker itself


def raise_limit() -> None:
    """Raises the process's limit of open files to its hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def fifths(count: int) -> int:
    """Returns so many fifths of the descriptors; at least 1."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (soft - RESERVED) * count // 5)
