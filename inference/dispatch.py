"""Calling the upstream of an admitted request, up to the head of a successful answer."""

from dataclasses import dataclass

from catalogue import health
from gateway.errors import NOTHING_BILLED
from gateway.steps import step

from .call import Call
from .dialects import DIALECTS
from .dialects.errors import REFUSED, report_of_body
from .failures import refusal, refusal_of_status
from .records import Admission
from .upstream.client import Unreachable, UpstreamCall
from .upstream.deadlines import Deadlines, first_byte_seconds
from .upstream.faults import BrokenAnswer, UpstreamFault
from .watch import Client, ClientLeft, ClientWatch


@dataclass(slots=True)
class Dispatched:
    """An upstream that is answering, and the watch that cuts it when the client leaves."""

    upstream: UpstreamCall
    watch: ClientWatch
    client: Client
    provider: str
    adjusted: tuple[str, ...] = ()  # parameters that the dialect had to change, for the response to disclose

    def note(self, *, failed: bool) -> None:
        """Counts the attempt for the provider's status, once it is known how it went."""
        health.note(self.provider, failed=failed)

    def close(self) -> None:
        """Ends both. Idempotent."""
        self.watch.stop()
        self.upstream.close()


def dispatch(admission: Admission, call: Call, client: Client, *, comes_at_once: bool = False) -> Dispatched:
    """Sends `call`, the admitted one in the upstream's shape. The client is watched once that has taken a while.

    An answer that `comes_at_once` sends no byte before it is complete, however long: it has the overall budget alone.

    Raises the ApiError of an upstream that fails or refuses, ClientLeft and WorkerStopped.
    """
    route = admission.route
    dialect = DIALECTS[route.upstream.dialect]
    with step("preparing the upstream request", NOTHING_BILLED):
        request = dialect.request(call, route)
    deadlines = Deadlines(first_byte_seconds(len(request.body)))
    if comes_at_once:
        deadlines.whole_answer()
    upstream = UpstreamCall(request, deadlines)
    watch = ClientWatch(client, is_quiet=lambda: upstream.is_waiting, on_gone=lambda: upstream.abort(ClientLeft()))
    upstream.watch_client = watch.start
    dispatched = Dispatched(upstream, watch, client, route.upstream.slug, request.adjusted)
    try:
        upstream.open()
        if not 200 <= upstream.status < 300:
            report = report_of_body(upstream.status, _told_of(upstream))
            dispatched.note(failed=health.is_failure(upstream.status))
            raise refusal_of_status(report, admission, retry_after=upstream.headers.get("retry-after", ""))
    except UpstreamFault as error:
        dispatched.note(failed=True)
        dispatched.close()
        raise refusal(error, admission) from error
    except BaseException:
        dispatched.close()
        raise
    return dispatched


def _told_of(upstream: UpstreamCall) -> bytes:
    """What an answer that is no success says. A refusal is one by its status, though its body breaks off."""
    if upstream.status < 400:
        return b""
    try:
        return upstream.read_all()
    except (Unreachable, BrokenAnswer):
        if upstream.status not in REFUSED:
            raise
        return b""
