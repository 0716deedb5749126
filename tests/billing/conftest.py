import pytest
from django.test import Client

from accounts.models import User


@pytest.fixture
def staff(client: Client) -> Client:
    """Signs in a superuser."""
    client.force_login(User.objects.create_superuser("staff@example.com"))
    return client
