"""HTTP in and out, PostgreSQL and Redis, past the libraries (README.md)."""

READABLE, WRITABLE = 1, 2  # events of a watcher of the hub
