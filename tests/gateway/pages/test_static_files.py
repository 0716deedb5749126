"""Pages and their files are compressed, and browsers keep a file for as long as its address names its content."""

import re

from tests.servers.customer import Customer

GZIP = {"Accept-Encoding": "gzip"}


def test_pages_and_files_are_compressed_and_files_are_kept(account: Customer) -> None:
    login = account.http.get("/login", headers=GZIP)
    assert login.headers["Content-Encoding"] == "gzip"
    found = re.search(r'href="(/static/css/gateway.css\?v=[0-9a-f]{12})"', login.text)
    assert found
    style = account.http.get(found[1], headers=GZIP)
    assert style.headers["Content-Encoding"] == "gzip"
    assert style.headers["Cache-Control"] == "max-age=604800, public"
    assert style.text.startswith("/* The dashboard.")
    assert "Content-Encoding" not in account.http.get(found[1], headers={"Accept-Encoding": "identity"}).headers
