"""Switches to a provider's second credential while the first one is rotated.

See docs/operations.md#a-providers-credential.
"""

import logging
from dataclasses import replace
from functools import cache

from catalogue.routing.routes import Route
from gateway.db.outages import Outage

logger = logging.getLogger(__name__)


def with_next(route: Route) -> Route:
    """Returns the route with the provider's second credential in use."""
    upstream = route.upstream
    return replace(route, upstream=replace(upstream, credential=upstream.next_credential))


def note_refused(slug: str, status: int) -> None:
    """Logs that the first credential is refused: once a minute for as long as that lasts."""
    _outage_of(slug).failed(f"HTTP {status}")


@cache
def _outage_of(slug: str) -> Outage:
    return Outage(f"provider {slug} refuses its credential, so the one in _NEXT is used", logger.warning)
