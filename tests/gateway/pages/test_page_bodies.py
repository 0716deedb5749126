"""Pages accept a form of 1 MiB at most, and no files."""

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, RequestFactory

from tests.page_text import plain
from tests.rawhttp import connect, read_response
from tests.servers.gateway import GatewayServer

MIB = 1024 * 1024
WORDS = "A form holds 1 MiB at most, and no files."


@pytest.mark.parametrize("path", ["/login", "/password/reset", "/keys", "/invitations/x", "/admin/", "/admin/login/"])
def test_a_larger_form_is_refused_in_words_before_a_byte_of_it(client: Client, path: str) -> None:
    reply = client.generic("POST", path, CONTENT_LENGTH=str(MIB + 1))
    assert reply.status_code == 413
    assert WORDS in plain(reply.text)
    assert "no-store" in reply["Cache-Control"]


def test_an_unknown_path_is_unknown_whatever_is_sent_there(client: Client) -> None:
    assert client.generic("POST", "/chat/completions", CONTENT_LENGTH=str(MIB + 1)).status_code == 404


@pytest.mark.parametrize(("size", "status"), [(MIB, 403), (MIB + 1, 413), (8 * MIB, 413)])
def test_whoever_sends_all_of_it_gets_the_answer(gateway: GatewayServer, size: int, status: int) -> None:
    """A form that is read gets 403, because it has no CSRF token, which is checked after reading."""
    head = f"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n"
    head += "Content-Type: application/x-www-form-urlencoded\r\nCookie: csrftoken=x\r\n\r\n"
    with connect(gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(head.encode() + b"x" * size)
        reply = read_response(answers)
    assert reply.status_code == status


def test_a_file_in_a_form_is_dropped_without_being_kept(rf: RequestFactory) -> None:
    request = rf.post("/login", {"username": "ada", "file": SimpleUploadedFile("large.bin", b"x" * 1000)})
    assert (request.POST["username"], dict(request.FILES)) == ("ada", {})
