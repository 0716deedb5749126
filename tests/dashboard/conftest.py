from collections.abc import Iterator

import pytest
from django.core.cache import cache
from django.test import Client

from accounts.models import Account, User
from gateway.server import turns
from tests.aliases.conftest import served
from tests.billing.records import MEMBER, open_for
from tests.seeding import seed

__all__ = ["seed", "served"]


@pytest.fixture(autouse=True)
def _clear_failed_sign_ins() -> Iterator[None]:
    """Clears the failed sign-ins, which the cache counts beyond the end of a test."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def _remove_page_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the pauses of pages: there are no other requests here for which they would rest."""
    monkeypatch.setattr(turns, "pause", lambda _seconds=0: None)


@pytest.fixture
def account() -> Account:
    """Opens Acme, with one member, in the test's own database."""
    return open_for(MEMBER)


@pytest.fixture
def member(client: Client, account: Account) -> Client:
    """Signs in the member of the module's account."""
    client.force_login(User.objects.get(email=MEMBER))
    return client
