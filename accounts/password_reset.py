"""The mail with which people set a password: those who forgot theirs, and those who never had one."""

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.core.mail import EmailMessage
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from gateway import mail

from .models import User

SUBJECT = "Your password for Inference Gateway"
BODY = """\
Somebody, probably you, asked for a new password for {email} at {origin}.

Choose one here within {minutes} minutes:

{link}

If it was not you, ignore this mail: the password stays as it is.
"""


def send_link(email: str) -> None:
    """Mails a link to the active person of that address; does nothing where there is none, in the same time.

    A person without a password gets it too: that is how the first owner of an account and whoever staff added get in.
    Staff keep somebody out by `is_active`.
    """
    person = User.objects.filter(email=email.lower(), is_active=True).first()
    if person is not None:
        mail.send_in_background(_message(person))


def _message(person: User) -> EmailMessage:
    body = BODY.format(
        email=person.email,
        origin=settings.PUBLIC_URL,
        minutes=settings.PASSWORD_RESET_TIMEOUT // 60,
        link=_link(person),
    )
    return EmailMessage(SUBJECT, body, to=[person.email])


def _link(person: User) -> str:
    """From PUBLIC_URL: a Host header could name somebody else's server."""
    uid, token = urlsafe_base64_encode(force_bytes(person.pk)), default_token_generator.make_token(person)
    return str(settings.PUBLIC_URL) + reverse("password-reset-link", args=[uid, token])
