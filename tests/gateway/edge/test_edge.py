"""The edge of every request handles unknown paths, wrong methods, broken HTTP, any size of body, and our failures."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from gateway.edge.health import LIVE_PATHS, READY_PATH
from tests.chat import HELLO, PATH, answer, question
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import REQUEST_ID, message, refusal
from tests.rawhttp import connect, exchange, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

UNKNOWN = (404, "not_found", "not_found", None)
NOT_ALLOWED = (405, "invalid_request_error", "method_not_allowed", None)
INVALID = (400, "invalid_request_error", "invalid_request_error", None)
TOO_LARGE = (413, "invalid_request_error", "request_too_large", None)
LIMIT = 1000

METHODS = {"chat": (PATH, "POST"), "models": ("/v1/models", "GET"), "model": ("/v1/models/sim/test/echo", "GET")}


# --- Paths and methods


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/",
        "/api/v1/",
        "/v1/nothing",
        "/api/v1/nothing",
        "/v1/chat",
        "/v1/chat/completions/more",
        "/v1//chat/completions",
        "/v2/chat/completions",
        "/api/chat/completions",
        "/nothing",
        "/v1/%00",
        "/v1/%ff%fe",
        "/v1/caf%C3%A9",
        "/v1/<script>",
        "/v1/" + "long/" * 500,
    ],
    ids=lambda path: path[:40],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_not_found(account: Customer, method: str, path: str) -> None:
    assert refusal(account.http.request(method, path)) == UNKNOWN


@pytest.mark.parametrize(
    ("endpoint", "method"),
    [
        *(("chat", method) for method in ("GET", "PUT", "PATCH", "DELETE", "TRACE", "BREW")),
        *(("models", method) for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW")),
        *(("model", method) for method in ("POST", "PUT", "PATCH", "DELETE")),
    ],
)
def test_a_wrong_method_is_refused_with_the_right_one(account: Customer, endpoint: str, method: str) -> None:
    path, right = METHODS[endpoint]
    reply = account.http.request(method, path)
    assert refusal(reply) == NOT_ALLOWED
    assert right in message(reply)
    assert right in allowed(reply.headers["Allow"])
    assert method not in allowed(reply.headers["Allow"])


@pytest.mark.parametrize("endpoint", METHODS)
def test_options_tells_the_methods_without_a_key_and_without_a_body(gateway: GatewayServer, endpoint: str) -> None:
    path, right = METHODS[endpoint]
    reply = exchange(gateway, f"OPTIONS {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert reply.status_code == 204
    assert {right, "OPTIONS"} <= allowed(reply.headers["Allow"])
    assert reply.content == b""
    assert not {"Content-Type", "Content-Length", "Transfer-Encoding"} & set(reply.headers)


@pytest.mark.parametrize("endpoint", ["models", "model"])
def test_head_is_get_without_its_body(account: Customer, endpoint: str) -> None:
    path, _ = METHODS[endpoint]
    head, get = account.http.head(path), account.http.get(path)
    assert (head.status_code, head.content, head.headers["Content-Type"]) == (200, b"", "application/json")
    assert head.headers["Content-Length"] == str(len(get.content))


def test_head_of_what_takes_post_is_a_wrong_method_without_a_body(account: Customer) -> None:
    reply = account.http.head(PATH)
    assert (reply.status_code, reply.content) == (405, b"")
    assert allowed(reply.headers["Allow"]) == {"POST", "OPTIONS"}


@pytest.mark.parametrize("endpoint", ["models", "chat"])
def test_head_needs_a_key(gateway: GatewayServer, endpoint: str) -> None:
    head = f"HEAD {METHODS[endpoint][0]} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with connect(gateway) as raw:
        raw.sendall(head.encode())
        with raw.makefile("rb") as answers:
            assert answers.readline().split()[1] == b"401"
            assert answers.read().endswith(b"\r\n\r\n")


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "nonsense", "*/*;q=0"])
@pytest.mark.parametrize("path", ["/v1/models", "/v1/models?format=api", "/v1/nothing", "/v1", "/api/v1"])
def test_answers_are_json_whatever_the_client_accepts(account: Customer, accept: str, path: str) -> None:
    reply = account.http.get(path, headers={"Accept": accept})
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.json()


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [("text/html,*/*;q=0.8", "text/html; charset=utf-8"), ("*/*", "application/json"), (None, "application/json")],
)
def test_an_unknown_path_elsewhere_is_a_page_for_who_asks_for_one(
    account: Customer, accept: str | None, content_type: str
) -> None:
    reply = account.http.get("/nothing", headers={"Accept": accept})
    assert (reply.status_code, reply.headers["Content-Type"]) == (404, content_type)


# --- Ids


def test_every_response_has_an_id_of_our_own(account: Customer) -> None:
    foreign = {"X-Request-Id": "mine"}
    replies = [account.http.get(path, headers=foreign) for path in ("/v1/models", "/v1/nothing", "/healthz", "/login")]
    replies += [account.http.post(PATH, json=question("echo", stream=stream)) for stream in (False, True)]
    ids = {reply.headers["X-Request-Id"] for reply in replies}
    assert len(ids) == len(replies)
    assert all(REQUEST_ID.fullmatch(identifier) for identifier in ids)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((f"/{path}", 200) for path in (*LIVE_PATHS, READY_PATH)),
        *((path, 400) for path in ("/healthz/", "/login", "/v1/models")),
    ],
)
def test_a_probe_is_answered_whatever_its_host_and_nothing_else(gateway: GatewayServer, path: str, status: int) -> None:
    reply = exchange(gateway, f"GET {path} HTTP/1.1\r\nHost: 10.1.2.3:8000\r\n\r\n")
    assert reply.status_code == status
    assert "Set-Cookie" not in reply.headers


# --- Broken HTTP

IN_PLAIN_WORDS = {
    400: "HTTP",
    414: "longer than 4094 bytes",
    431: "more than 100 headers, or one of more than 8190 bytes",
    417: "100-continue",
    501: "chunked",
}
CHAT = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\n".encode()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /v1/models\r\n\r\n", 400),
        (b"GET /v1/models HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        (b"G@T /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nNo colon\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nSpaced : x\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: a\r\n folded\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: x\r\n" * 200 + b"\r\n", 431),
        (b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nExpect: wonders\r\n\r\n", 417),
        (b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: sorcery\r\n\r\n", 501),
        (b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (CHAT + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (CHAT + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (CHAT + b"Transfer-Encoding: Identity,chunked\r\n\r\n0\r\n\r\n", 501),
        (CHAT + b"Transfer-Encoding: chunked, deflate\r\n\r\n", 501),
        (CHAT + b"Content-Length: 2\r\nTransfer-Encoding: compress\r\n\r\n{}", 501),
        (CHAT + b"Transfer-Encoding: chunked, chunked\r\n\r\n", 400),
        (b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: +1\r\n\r\nx", 400),
        (b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1, 2\r\n\r\nx", 400),
        (b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400),
        (
            b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\n",
            400,
        ),
    ],
    ids=lambda value: str(value[:40]) if isinstance(value, bytes) else None,
)
def test_broken_http_is_refused_in_the_envelope(gateway: GatewayServer, request_bytes: bytes, status: int) -> None:
    reply = exchange(gateway, request_bytes)
    assert refusal(reply) == (status, "invalid_request_error", "invalid_request_error", None)
    assert reply.headers["Connection"] == "close"
    assert reply.headers["x-should-retry"] == "false"
    assert IN_PLAIN_WORDS[status] in message(reply)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "a b", "", "localhost:port", "[::2]"])
@pytest.mark.parametrize("path", [PATH, "/v1/models", "/api/v1/models", "/v1/nothing", "/nothing", "/login"])
def test_a_host_that_is_not_ours_is_refused(gateway: GatewayServer, path: str, host: str) -> None:
    assert refusal(exchange(gateway, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")) == INVALID


@pytest.mark.parametrize("path", [PATH, "/v1/models", "/nothing", "/login", "/healthz"])
def test_http_1_1_needs_a_host_and_http_1_0_does_not(gateway: GatewayServer, path: str) -> None:
    reply = exchange(gateway, f"GET {path} HTTP/1.1\r\n\r\n")
    assert refusal(reply) == INVALID
    assert "Host" in message(reply)
    assert exchange(gateway, f"GET {path} HTTP/1.0\r\n\r\n").status_code != 400


# --- Bodies


def test_no_header_puts_a_prefix_before_our_addresses(gateway: GatewayServer) -> None:
    reply = requests.get(f"{gateway.origin}/prefix/login", headers={"SCRIPT_NAME": "/prefix"}, timeout=10)
    assert reply.status_code == 404


def test_a_body_may_come_in_chunks(account: Customer) -> None:
    content = json.dumps(question("echo")).encode()
    reply = account.http.post(PATH, data=iter([content[:10], content[10:]]))
    assert reply.json()["choices"][0]["message"]["content"] == "hello there"


def test_a_client_that_waits_for_100_continue_gets_it(gateway: GatewayServer, account: Customer) -> None:
    content = json.dumps(question("echo")).encode()
    with connect(gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(head_of(account, f"Content-Length: {len(content)}\r\nExpect: 100-continue"))
        assert read_response(answers).status_code == 100
        raw.sendall(content)
        assert read_response(answers).status_code == 200


@pytest.mark.parametrize(
    "chunks",
    [
        b"zz\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5;\x00\r\nhello\r\n0\r\n\r\n",
    ],
    ids=["no size", "a negative size", "no terminator", "a bad extension"],
)
def test_a_broken_chunk_is_the_clients_fault(gateway: GatewayServer, account: Customer, chunks: bytes) -> None:
    reply = exchange(gateway, head_of(account, "Transfer-Encoding: chunked") + chunks)
    assert refusal(reply) == INVALID


@pytest.mark.parametrize("path", [PATH, "/v1/completions", "/v1/embeddings", "/v1/aliases"])
@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, identity", "x" * 5000], ids=lambda encoding: encoding[:9])
def test_a_compressed_body_is_refused_by_the_name_of_its_encoding(account: Customer, path: str, encoding: str) -> None:
    content = gzip.compress(json.dumps(question("echo")).encode())
    reply = account.http.post(path, data=content, headers={"Content-Encoding": encoding})
    assert refusal(reply) == INVALID
    assert encoding[:50] in message(reply)
    assert "uncompressed" in message(reply)
    assert len(message(reply)) < 200


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
def test_a_body_may_say_that_it_is_not_compressed(account: Customer, encoding: str) -> None:
    assert account.http.post(PATH, json=question("echo"), headers={"Content-Encoding": encoding}).status_code == 200


@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_body_that_ends_early_is_the_clients_fault(gateway: GatewayServer, account: Customer, framing: str) -> None:
    begun = b"5\r\n{" if "chunked" in framing else b"{"
    assert refusal(exchange(gateway, head_of(account, framing) + begun, half_close=True)) == INVALID


def test_a_body_above_djangos_own_limit_is_served(account: Customer) -> None:
    long = [{"role": "user", "content": "word " * 800_000}]
    assert answer(account, "echo", messages=long, max_tokens=2)["usage"]["prompt_tokens"] == 800_000


@pytest.fixture(scope="module")
def narrow(start_shared_gateway: StartGateway) -> GatewayServer:
    """Starts a gateway that accepts only small bodies, and from which some tests take a table for a moment."""
    return start_shared_gateway(GATEWAY_MAX_BODY_BYTES=str(LIMIT))


@pytest.mark.parametrize("framing", ["declared", "chunked"])
def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not(
    narrow: GatewayServer, open_account: OpenAccount, framing: str
) -> None:
    customer = open_account(narrow)
    for size, status in ((LIMIT, 200), (LIMIT + 1, 413)):
        content = body_of(size)
        reply = customer.http.post(PATH, data=content if framing == "declared" else iter([content[:9], content[9:]]))
        assert reply.status_code == status
    assert refusal(reply) == TOO_LARGE
    assert str(LIMIT) in message(reply)
    assert reply.headers["Connection"] == "close"


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
@pytest.mark.parametrize("path", ["/chat/completions", "/models", "/nothing"])
def test_a_declared_body_above_the_limit_is_refused_at_every_path(
    gateway: GatewayServer, prefix: str, path: str
) -> None:
    head = f"POST {prefix}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 33554433\r\n\r\n"
    assert refusal(exchange(gateway, head)) == TOO_LARGE


UNREAD = {
    "without a key": ("POST", "/v1/aliases", "X: no key", 401),
    "of an unknown key": ("POST", PATH, "Authorization: Bearer sk-gw-" + "A" * 43, 401),
    "beyond the key's limit": ("POST", PATH, "Authorization: Bearer <spent>", 429),
    "of a wrong method": ("PUT", PATH, "Authorization: Bearer <key>", 405),
    "of a wrong method of the control plane": ("PUT", "/v1/models", "Authorization: Bearer <key>", 405),
    "of a GET": ("GET", "/v1/models", "Authorization: Bearer <key>", 200),
    "of an encoding": ("POST", PATH, "Content-Encoding: gzip\r\nAuthorization: Bearer <key>", 400),
    "of an unknown path": ("POST", "/v1/nothing", "X: any", 404),
}


@pytest.mark.parametrize("framing", ["Content-Length: 46", "Content-Length: 33554432", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize(("method", "path", "headers", "status"), UNREAD.values(), ids=UNREAD)
def test_a_body_that_is_not_read_ends_its_connection(
    gateway: GatewayServer, account: Customer, framing: str, method: str, path: str, headers: str, status: int
) -> None:
    """The answer announces the end of the connection, and the rest of the body is not read as the next request."""
    if "<spent>" in headers:
        key = account.another_key("spent", "--rpm", "1")
        account.http.post(PATH, headers={"Authorization": f"Bearer {key}"})
        headers = headers.replace("<spent>", key)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n{headers.replace('<key>', account.key)}\r\n\r\n"
    )
    smuggled = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall((head + smuggled).encode())
        reply = read_response(answers)
        assert (reply.status_code, reply.headers["Connection"]) == (status, "close")
        assert answers.read() == b""


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"POST {PATH} HTTP/1.1\r\nContent-Length: 0", 401),
        (f"GET {PATH} HTTP/1.1", 401),
        ("OPTIONS /v1/models HTTP/1.1", 204),
        ("POST /v1/nothing HTTP/1.1", 404),
    ],
)
def test_a_refusal_without_a_body_keeps_its_connection(gateway: GatewayServer, head: str, status: int) -> None:
    with connect(gateway) as raw, raw.makefile("rb") as answers:
        for _ in range(2):
            raw.sendall(f"{head}\r\nHost: localhost\r\n\r\n".encode())
            reply = read_response(answers)
            assert (reply.status_code, reply.headers["Connection"]) == (status, "keep-alive")


def test_a_connection_serves_one_request_after_the_other(gateway: GatewayServer, account: Customer) -> None:
    content = json.dumps(question("echo")).encode()
    declared = head_of(account, f"Content-Length: {len(content)}") + content
    chunked = head_of(account, "Transfer-Encoding: chunked") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
    unsound = head_of(account, "Content-Length: 1") + b"{"
    with connect(gateway) as raw, raw.makefile("rb") as answers:
        for sent, status in ((declared, 200), (unsound, 400), (chunked, 200), (declared, 200)):
            raw.sendall(sent)
            reply = read_response(answers)
            assert (reply.status_code, reply.headers["Connection"]) == (status, "keep-alive")


# --- Our own failures


@pytest.mark.parametrize(
    ("table", "path", "step"),
    [
        ("accounts_apikey", PATH, "authenticating the key"),
        ("accounts_apikey", "/v1/models", "authenticating the key"),
        ("accounts_apikey", "/v1/aliases", "authenticating the key"),
        ("catalogue_providerminute", "/v1/providers", "listing the providers"),
        ("billing_generation", "/v1/generations", "listing the generations"),
        ("billing_generation", f"/v1/generation/gen-{'0' * 32}", "reading the generation"),
        ("billing_generation", f"/v1/metrics/gen-{'0' * 32}", "reading the generation's metrics"),
        ("aliases_alias", "/v1/aliases", "listing or creating aliases"),
        ("aliases_alias", "/v1/aliases/mine", "reading or changing the alias"),
        ("aliases_alias", "/v1/aliases/mine/stats", "adding up the alias's use"),
        ("aliases_alias", "/v1/aliases/mine/history", "reading the alias's history"),
    ],
)
def test_a_failure_of_ours_names_the_step_and_nothing_else(
    narrow: GatewayServer, open_account: OpenAccount, table: str, path: str, step: str
) -> None:
    customer = open_account(narrow)
    method = "POST" if path == PATH else "GET"
    with without_table(narrow, table):
        reply = customer.http.request(method, path, json=question("echo"))
    assert refusal(reply) == (500, "internal_server_error", "internal_server_error", None)
    known = " Nothing was billed." if path == PATH else ""  # the control plane never bills
    assert message(reply) == f"Internal error while {step}.{known}"
    assert table in narrow.log  # each step logs once a minute, perhaps for another path
    assert customer.key not in narrow.log
    assert customer.http.request(method, path, json=question("echo")).status_code in (200, 404)


def test_a_failure_on_a_page_is_logged_too(narrow: GatewayServer) -> None:
    logged = len(narrow.log)
    with without_table(narrow, "django_session"):
        reply = requests.get(f"{narrow.origin}/", cookies={"sessionid": "a" * 32}, timeout=10)
    assert reply.status_code == 500
    assert "<h1>Something went wrong</h1>" in reply.text
    assert "django_session" not in reply.text
    assert "django_session" in narrow.log[logged:]


@contextmanager
def without_table(server: GatewayServer, table: str) -> Iterator[None]:
    """Renames a table for the time of the block, as by an operator's mistake."""
    server.query(f"ALTER TABLE {table} RENAME TO {table}_away")
    try:
        yield
    finally:
        server.query(f"ALTER TABLE {table}_away RENAME TO {table}")


def head_of(customer: Customer, framing: str) -> bytes:
    """Returns the head of a chat completion request."""
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}"
    return f"{head}\r\n{framing}\r\n\r\n".encode()


def body_of(size: int) -> bytes:
    """Builds a sound request of exactly `size` bytes."""
    content = json.dumps({"model": "sim/test/echo", "messages": HELLO, "user": ""}).encode()
    return content.replace(b'"user": ""', b'"user": "' + b"x" * (size - len(content)) + b'"')


def allowed(header: str) -> set[str]:
    return set(header.split(", "))
