"""Mail, sent beside the request that asks for it."""
# An answer neither waits for a mail server nor tells its word.

import logging
import threading
import time
from email.utils import make_msgid, parseaddr

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.utils.encoding import punycode

from ..stores.outages import Outage

logger = logging.getLogger(__name__)
outage = Outage("a mail could not be sent", logger.error)
SERVER_SECONDS = 20.0  # each step of talking to the mail server
# RFC 3834, section 5, and its equal of Exchange: absence notes answer no mail of a machine.
AUTOMATIC = {"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All"}
LAST_SECONDS = 5.0  # what a worker that stops gives to mails under way
_under_way: set[threading.Thread] = set()


def send(message: EmailMessage) -> None:
    """Sends it. Raises OSError or SMTPException."""
    # Django would take the id's domain from the machine, whose name is nobody else's.
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2]
    message.extra_headers = AUTOMATIC | {"Message-ID": make_msgid(domain=punycode(domain))} | message.extra_headers
    message.connection = get_connection(timeout=SERVER_SECONDS)
    message.send()


def send_in_background(message: EmailMessage) -> None:
    """Sends it in a thread (gevent's greenlet)."""
    # A failure is logged without the message: its addresses and links are nobody else's.
    thread = threading.Thread(target=_send, args=(message,), name="mail", daemon=True)
    _under_way.add(thread)
    thread.start()


def finish(seconds: float = LAST_SECONDS) -> None:
    """Waits until no mail is under way."""
    deadline = time.monotonic() + seconds
    for thread in list(_under_way):
        if thread.is_alive():
            thread.join(max(0.0, deadline - time.monotonic()))


def _send(message: EmailMessage) -> None:
    try:
        send(message)
    except Exception as error:  # noqa: BLE001  # whatever a mail server or the network does, nobody is there to catch it
        outage.failed(type(error).__name__)  # its words quote addresses
    else:
        outage.worked()
    finally:
        _under_way.discard(threading.current_thread())
