"""Mail is sent outside the request, and a worker that stops waits for mail that is being sent."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend
from pytest_django import Settings

from gateway.pages import mail
from gateway.server.hooks import worker_hooks

PATIENCE_SECONDS = 10


class SlowServer(BaseEmailBackend):
    """Accepts a mail only when the test allows it."""

    may_take: ClassVar[threading.Event] = threading.Event()
    taken: ClassVar[list[EmailMessage]] = []

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        assert self.may_take.wait(PATIENCE_SECONDS)
        self.taken.extend(email_messages)
        return len(email_messages)


@pytest.fixture
def server(settings: Settings) -> Iterator[type[SlowServer]]:
    settings.EMAIL_BACKEND = f"{__name__}.SlowServer"
    SlowServer.may_take.clear()
    SlowServer.taken.clear()
    yield SlowServer
    SlowServer.may_take.set()
    mail.finish()


def test_a_page_does_not_wait_for_the_mail_server(server: type[SlowServer]) -> None:
    mail.send_in_background(EmailMessage("subject", "body", to=["guest@example.com"]))
    assert server.taken == []
    server.may_take.set()
    mail.finish()
    assert [message.subject for message in server.taken] == ["subject"]


def test_a_mail_says_that_a_machine_sent_it_and_names_the_sender_s_domain_alone(
    server: type[SlowServer], settings: Settings
) -> None:
    """This keeps absence notes from answering, and no header contains the name of a container or host."""
    settings.DEFAULT_FROM_EMAIL = "Gateway <no-reply@bücher.example>"
    server.may_take.set()
    mail.send(EmailMessage("subject", "body", to=["guest@example.com"]))
    header = server.taken[0].message()
    assert header["Auto-Submitted"] == "auto-generated"
    assert header["X-Auto-Response-Suppress"] == "All"
    assert header["Message-ID"].endswith("@xn--bcher-kva.example>")


def test_a_worker_that_stops_waits_for_mail_under_way(server: type[SlowServer]) -> None:
    assert mail.finish in worker_hooks.stop
    mail.send_in_background(EmailMessage("subject", "body", to=["guest@example.com"]))
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(mail.finish)
        assert not stopping.done()
        server.may_take.set()
        stopping.result(PATIENCE_SECONDS)
    assert len(server.taken) == 1


def test_a_mail_server_that_hangs_does_not_keep_a_worker(server: type[SlowServer]) -> None:
    mail.send_in_background(EmailMessage("subject", "body", to=["guest@example.com"]))
    mail.finish(0.01)
    assert server.taken == []
