"""Chooses the HTTP client for a call to an upstream."""

from uuid import UUID

from . import fastpath
from .fastpath.client_watch import Client
from .fastpath.http_client import Deadlines, UpstreamCall, UpstreamRequest


def upstream_call(request: UpstreamRequest, deadlines: Deadlines, client: Client, account: UUID) -> UpstreamCall:
    """Returns a call that is not open yet: on plain sockets, or with `requests` if the fast path is off."""
    if fastpath.is_on():
        return UpstreamCall(request, deadlines, client, account)
    from .requests_client import RequestsCall  # noqa: PLC0415  # saves 7 MB in workers that do not need it

    return RequestsCall(request, deadlines, client, account)
