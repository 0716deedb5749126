"""Tests how the simulated provider reads and writes HTTP and events, including odd ones."""

import http.client
import json
import socket

import pytest

from tests.simulator.process import Provider, chat_body, frames


def read_all(raw: socket.socket) -> bytes:
    """Reads until the other end closes the connection. Raises ConnectionResetError if it is reset."""
    received = b""
    while data := raw.recv(65536):
        received += data
    return received


def read_chunked(raw: socket.socket) -> bytes:
    """Reads the body of a chunked answer and returns it with its framing."""
    received = b""
    while not received.endswith(b"\r\n0\r\n\r\n"):
        received += raw.recv(65536)
    return received.partition(b"\r\n\r\n")[2]


def chunk_sizes(body: bytes) -> list[int]:
    """Returns the size of each chunk, except the empty one at the end."""
    sizes = []
    while (size := int(body.partition(b"\r\n")[0], 16)) > 0:
        sizes.append(size)
        body = body.partition(b"\r\n")[2][size + 2 :]
    return sizes


def test_lines_can_end_with_crlf_and_comments_stand_between(provider: Provider) -> None:
    text = provider.chat_stream("crlf+comments").read().decode()
    assert text.count("\n") == text.count("\r\n")
    assert text.startswith(": ping\r\n\r\ndata:{")


def test_an_event_can_take_several_data_lines(provider: Provider) -> None:
    first = provider.chat_stream("multiline").read().decode().split("\n\n")[0]
    joined = "\n".join(line.removeprefix("data: ") for line in first.splitlines())
    assert json.loads(joined)["choices"]


def test_pings_come_before_the_first_event(provider: Provider) -> None:
    text = provider.chat_stream("pings:2:0.001+pause-after-role:0.001").read().decode()
    assert text.startswith(": ping\n\n: ping\n\ndata: ")


def test_a_body_can_be_split_within_characters(provider: Provider) -> None:
    with provider.send("/v1/chat/completions", chat_body("split:7", "é" * 9)) as raw:
        sizes = chunk_sizes(read_chunked(raw))
    assert set(sizes[:-1]) == {7}
    assert sizes[-1] <= 7


def test_several_events_can_share_a_segment(provider: Provider) -> None:
    with provider.send("/v1/chat/completions", chat_body("split:100000", "hi", stream=True)) as raw:
        received = read_chunked(raw)
    assert received.count(b"data: ") == 4
    assert len(chunk_sizes(received)) == 1


@pytest.mark.parametrize("streamed", [True, False])
def test_a_body_can_be_delimited_by_close(provider: Provider, streamed: bool) -> None:
    with provider.send("/v1/chat/completions", chat_body("close-delimited", "hi", stream=streamed)) as raw:
        head, _, body = read_all(raw).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"content-length" not in head
    assert (frames(body.decode()) if streamed else json.loads(body)) != []


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_can_come_twice(provider: Provider, streamed: bool) -> None:
    with provider.send("/v1/chat/completions", chat_body("surplus:0.05", "hi", stream=streamed)) as raw:
        answers = b""
        while answers.count(b"HTTP/1.1 200 OK") < 2 or len(answers) % 2 or answers[: len(answers) // 2] * 2 != answers:
            data = raw.recv(65536)
            assert data
            answers += data


def test_a_connection_serves_call_after_call(provider: Provider) -> None:
    with provider.connect() as connection:
        connection.connect()
        kept = connection.sock
        for model in ("echo", "status:500", "malformed:1", "echo"):
            connection.request("POST", "/v1/chat/completions", json.dumps(chat_body(model, "hi", stream=True)))
            connection.getresponse().read()
        assert connection.sock is kept


def test_a_request_may_be_chunked(provider: Provider) -> None:
    content = json.dumps(chat_body("echo", "hi")).encode()
    with provider.connect() as connection:
        connection.request("POST", "/v1/chat/completions", iter([content[:5], content[5:]]), encode_chunked=True)
        assert json.loads(connection.getresponse().read())["choices"]


def test_a_request_may_be_large_and_expect_to_be_let_through(provider: Provider) -> None:
    body = json.dumps(chat_body("echo", "x" * 40_000_000, max_tokens=5, stop="x")).encode()
    with socket.create_connection(("127.0.0.1", provider.port), timeout=20) as raw:
        raw.sendall(
            f"POST /v1/messages HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        )
        assert raw.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(body)
        with http.client.HTTPResponse(raw) as response:
            response.begin()
            assert json.loads(response.read())["usage"]["input_tokens"] == 1


def test_what_is_no_http_is_refused(provider: Provider) -> None:
    with socket.create_connection(("127.0.0.1", provider.port), timeout=20) as raw:
        raw.sendall(b"hello\r\n\r\n")
        assert read_all(raw).startswith(b"HTTP/1.1 400")


def test_two_hundred_streams_are_open_at_once(provider: Provider) -> None:
    model = "stall:1+finish:crowd"
    streams = [provider.chat_stream(model) for _ in range(200)]
    assert provider.eventually(model, open=200)
    for stream in streams:
        stream.close()
    assert provider.eventually(model, cut=200, open=0)
