"""Speaks HTTP and Redis without the usual libraries, for speed (README.md)."""

READABLE, WRITABLE = 1, 2  # events of gevent's watchers
