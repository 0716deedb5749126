"""If a provider refuses the gateway itself, staff get mail at once, and then once an hour while it lasts."""

import logging
from datetime import timedelta

import pytest
from django.core import mail
from django.utils import timezone

from accounts.models import User
from catalogue.models import Provider, ProviderTrouble
from catalogue.routing import health, troubles
from gateway.pages.mail import finish

pytestmark = pytest.mark.django_db
WORDS = "has no credit left in the operator's account"


@pytest.fixture
def provider() -> Provider:
    return Provider.objects.create(slug="acme-ai", name="Acme AI", base_url="https://acme.example/v1", dialect="openai")


def refuse(slug: str = "acme-ai") -> None:
    troubles.note(slug, WORDS)
    troubles.flush()


def tell() -> int:
    told = troubles.tell_staff()
    finish()
    return told


def passes(**hours: float) -> None:
    """Makes everything older."""
    for trouble in ProviderTrouble.objects.all():
        trouble.seen_at -= timedelta(**hours)
        trouble.told_at = trouble.told_at and trouble.told_at - timedelta(**hours)
        trouble.save()


def test_staff_get_a_mail_and_the_log_a_line(provider: Provider, caplog: pytest.LogCaptureFixture) -> None:
    User.objects.create_user("one@example.com", is_staff=True)
    User.objects.create_user("gone@example.com", is_staff=True, is_active=False)
    User.objects.create_user("member@example.com")
    refuse()
    with caplog.at_level(logging.ERROR):
        assert tell() == 1
    assert caplog.messages == [f"provider acme-ai {WORDS}"]
    (message,) = mail.outbox
    assert (message.to, message.subject) == (["one@example.com"], "Provider acme-ai refuses the gateway")
    assert f"Provider acme-ai {WORDS}." in message.body
    assert f"http://127.0.0.1:8000/admin/catalogue/provider/{provider.pk}/change/" in message.body


def test_one_mail_an_hour_while_it_lasts(provider: Provider) -> None:
    refuse()
    assert [tell(), tell()] == [1, 0]
    refuse()
    assert tell() == 0
    passes(minutes=61)
    assert tell() == 0  # nothing was refused since
    refuse()
    assert [tell(), tell()] == [1, 0]


def test_each_provider_has_a_mail_of_its_own(provider: Provider) -> None:
    refuse()
    refuse("other")
    assert tell() == 2


def test_it_is_a_provider_with_problems_until_an_hour_has_passed(provider: Provider) -> None:
    assert health.unwell(timezone.now()) == []
    refuse()
    (found,) = health.unwell(timezone.now())
    assert (found.provider, found.words, found.is_severe) == (provider, WORDS, True)
    passes(minutes=61)
    assert health.unwell(timezone.now()) == []
