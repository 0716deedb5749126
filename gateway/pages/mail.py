"""Sends mail, at once or in the background of a request.

In the background, the request's answer neither waits for the mail server nor reveals what it said.
"""

import logging
import threading
import time
from email.utils import make_msgid, parseaddr

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.utils.encoding import punycode

from ..db.outages import Outage
from ..operator import operator

logger = logging.getLogger(__name__)
outage = Outage("a mail could not be sent", logger.error)
STEP_SECONDS = 20.0  # each step of talking to the mail server
# Ask mail servers for no automatic replies, such as out-of-office notes: by RFC 3834, section 5, and by the header of
# Exchange.
NO_AUTOMATIC_REPLIES = {"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All"}
STOP_SECONDS = 5.0  # how long a worker that stops waits for mails
_under_way: set[threading.Thread] = set()


def send(message: EmailMessage) -> None:
    """Sends a mail and waits for the mail server. Raises OSError or SMTPException."""
    # Django would use the machine's name as the id's domain, and reveal it.
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2]
    message.extra_headers = (
        NO_AUTOMATIC_REPLIES | {"Message-ID": make_msgid(domain=punycode(domain))} | message.extra_headers
    )
    message.body += _signature()
    message.connection = get_connection(timeout=STEP_SECONDS)
    message.send()


def send_in_background(message: EmailMessage) -> None:
    """Sends a mail in a thread, which in a worker is a greenlet, and logs a failure."""
    # The log does not show the message, because its addresses and links are private.
    thread = threading.Thread(target=_send, args=(message,), name="mail", daemon=True)
    _under_way.add(thread)
    thread.start()


def finish(seconds: float = STOP_SECONDS) -> None:
    """Waits until all mails are sent, at most `seconds`."""
    deadline = time.monotonic() + seconds
    for thread in list(_under_way):
        if thread.is_alive():
            thread.join(max(0.0, deadline - time.monotonic()))


def _signature() -> str:
    """Returns the operator's name, address, email and VAT id as a mail's last lines; empty if there is only a name."""
    me = operator()
    lines = [me.name, *me.address, *filter(None, [me.email, me.vat_id and f"VAT id {me.vat_id}"])]
    return "\n-- \n" + "\n".join(lines) + "\n" if len(lines) > 1 else ""


def _send(message: EmailMessage) -> None:
    try:
        send(message)
    except Exception as error:  # noqa: BLE001  # the boundary of a thread
        outage.failed(type(error).__name__)  # its message would show addresses
    else:
        outage.worked()
    finally:
        _under_way.discard(threading.current_thread())
