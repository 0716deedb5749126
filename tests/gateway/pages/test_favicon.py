"""The product's icon is linked by its pages, and served at the address that browsers request by default."""

from tests.servers.customer import Customer


def test_browsers_find_an_icon_linked_and_unlinked(account: Customer) -> None:
    assert 'rel="icon" href="/static/img/mark.svg?v=' in account.http.get("/login").text
    assert account.http.get("/static/img/mark.svg").headers["Content-Type"] == "image/svg+xml"
    reply = account.http.get("/favicon.ico")
    assert (reply.status_code, reply.content[:4]) == (200, b"\0\0\1\0")
    assert reply.headers["Content-Type"] in ("image/x-icon", "image/vnd.microsoft.icon")
    assert "Set-Cookie" not in reply.headers
