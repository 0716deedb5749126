"""Speaks HTTP and Redis without the usual libraries, for speed (README.md)."""

from django.conf import settings

READABLE, WRITABLE = 1, 2  # events of gevent's watchers


def is_on() -> bool:
    """Tells whether inference requests use the code of this room, rather than the libraries that it replaces.

    Nothing else reads GATEWAY_FASTPATH. What the switch controls is listed in README.md.
    """
    return bool(settings.GATEWAY_FASTPATH)
