from collections.abc import Iterator

import pytest
from django.core.cache import cache
from django.test import Client

from accounts.models import Account, User
from tests.aliases.conftest import served
from tests.billing.records import MEMBER
from tests.seeding import seed

__all__ = ["seed", "served"]


@pytest.fixture(autouse=True)
def _nobody_has_guessed() -> Iterator[None]:
    """Failed sign-ins are counted in the cache, which outlives a test."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def member(client: Client, account: Account) -> Client:
    """A browser in which the member of the module's account has signed in."""
    client.force_login(User.objects.get(email=MEMBER))
    return client
