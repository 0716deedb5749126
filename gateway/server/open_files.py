"""File descriptors of a worker: two fifths for clients, two for their upstreams, one for idle connections to those."""

import resource

RESERVED = 100  # for the database, Redis, the log, the spool and the worker itself


def raise_limit() -> None:
    """Lets this process and its children open as many files as the hard limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def fifths(count: int) -> int:
    """A number of fifths of the file descriptors beside the reserved ones; at least one descriptor."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (soft - RESERVED) * count // 5)
