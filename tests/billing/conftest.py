import pytest
from django.test import Client

from accounts.models import User


@pytest.fixture
def staff(client: Client) -> Client:
    """A browser in which somebody who may do everything has signed in."""
    client.force_login(User.objects.create_superuser("staff@example.com"))
    return client
