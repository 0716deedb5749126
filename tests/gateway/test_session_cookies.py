"""A cookie that cannot belong to a session counts as absent in either database: PostgreSQL allows no NUL in a text."""

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db

COOKIES = ['"\\000aaaaaaaaaaaaaaaa"', '"\\377aaaaaaaaaaaaaaaa"', "a" * 3000, "../../etc/passwd", ""]


@pytest.mark.parametrize("cookie", COOKIES)
def test_who_sends_it_is_a_stranger(cookie: str) -> None:
    client = Client(headers={"Cookie": f"sessionid={cookie}"})
    assert client.get("/login").status_code == 200
    assert client.get("/")["Location"] == "/login?next=/"
    assert client.get("/admin/")["Location"].startswith("/admin/login/")
