"""Requests use aliases on a real server: in answers, streams and records, and while aliases move under every worker."""

import http.client
import json
import re
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.bills import records
from tests.chat import answer, ask, stream
from tests.conftest import OpenAccount
from tests.envelope import message, refusal
from tests.rawhttp import connect, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

ALIASES = "/v1/aliases"
NOT_FOUND = (404, "not_found", "alias_not_found", "model")
MOST_CONNECTIONS = 300  # until each worker has accepted one; the kernel distributes them almost evenly


def create(customer: Customer, target: str = "sim/test/echo/FRPAR", name: str = "fast") -> dict[str, Any]:
    reply = customer.http.post(ALIASES, json={"name": name, "target": target})
    assert reply.status_code == 201, reply.text
    created: dict[str, Any] = reply.json()
    return created


def repoint(customer: Customer, target: str) -> None:
    assert customer.http.patch(f"{ALIASES}/fast", json={"target": target}).status_code == 200


def test_an_answer_names_the_alias_and_the_resolved_id(account: Customer) -> None:
    create(account)
    body = answer(account, "alias/fast")
    assert body["model"] == "sim/test/echo/FRPAR"
    metadata = body["gateway_metadata"]
    assert (metadata["requested_alias"], metadata["routing_mode"]) == ("alias/fast", "explicit")
    assert (metadata["provider"], metadata["region"]) == ("sim", "FRPAR")
    assert not {"routing_reason", "requested_auto", "eu_sovereign"} & metadata.keys()


def test_so_does_a_stream(account: Customer) -> None:
    create(account, "sim/test/chunks/DEFRA")
    whole = stream(account, "alias/fast")
    assert {chunk["model"] for chunk in whole.chunks} == {"sim/test/chunks/DEFRA"}
    (metadata,) = (chunk["gateway_metadata"] for chunk in whole.chunks if "gateway_metadata" in chunk)
    assert metadata["requested_alias"] == "alias/fast"


def test_the_nearest_of_the_accounts_own_aliases_are_named(account: Customer, open_account: OpenAccount) -> None:
    other = open_account(account.gateway)
    create(account)
    create(other, name="fasts")
    text = message(ask(account, "alias/fats"))
    assert text == ("This account has no alias 'alias/fats'. Did you mean `alias/fast`? `GET /v1/aliases` lists them.")
    assert "fast" not in message(ask(account, "alias/unlike")).replace("alias/unlike", "")
    assert "Did you mean `alias/fast`?" in message(account.http.get("/v1/aliases/fst"))


def test_so_do_text_completions_and_embeddings(account: Customer) -> None:
    create(account, "sim/test/completion/FRPAR", "text")
    create(account, "sim/test/embedding/FRPAR", "vectors")
    text = account.http.post("/v1/completions", json={"model": "alias/text", "prompt": "hello there"}).json()
    vectors = account.http.post("/v1/embeddings", json={"model": "alias/vectors", "input": "hello there"}).json()
    for body, name, model in ((text, "text", "completion"), (vectors, "vectors", "embedding")):
        assert body["model"] == f"sim/test/{model}/FRPAR"
        assert body["gateway_metadata"]["requested_alias"] == f"alias/{name}"


def test_so_does_the_record_and_the_statistics_count_it(account: Customer) -> None:
    alias = create(account)
    body = answer(account, "alias/fast")
    answer(account, "echo")
    _, listed = account.http.get("/v1/generations").json()["data"]
    assert (listed["model"], listed["requested_alias"]) == ("sim/test/echo/FRPAR", "alias/fast")
    assert listed["generation_id"] == body["id"]
    stats = account.http.get(f"{ALIASES}/fast/stats").json()
    assert stats["alias"] == alias
    (row,) = stats["breakdown"]
    assert (row["model"], row["provider"], row["region"]) == ("sim/test/echo", "sim", "FRPAR")
    assert row["display_name"] == "Echo"
    assert stats["totals"]["requests"] == row["requests"] == 1
    assert stats["totals"]["cost"] == body["usage"]["cost"]
    assert stats["totals"]["total_tokens"] == body["usage"]["total_tokens"]
    assert stats["totals"]["carbon_gco2e"] == pytest.approx(body["gateway_metadata"]["carbon_gco2e"], abs=1e-12)


def test_the_region_left_out_is_global(account: Customer) -> None:
    create(account, "sim/test/worldwide")
    assert answer(account, "alias/fast")["model"] == "sim/test/worldwide/global"


def test_a_deleted_alias_is_not_found_on_every_endpoint(account: Customer) -> None:
    create(account)
    assert account.http.delete(f"{ALIASES}/fast").status_code == 204
    for path, rest in (
        ("chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
        ("completions", {"prompt": "hello"}),
        ("embeddings", {"input": "hello"}),
    ):
        reply = account.http.post(f"/v1/{path}", json={"model": "alias/fast", **rest})
        assert refusal(reply) == NOT_FOUND
        assert "alias/fast" in message(reply)
        assert reply.headers["x-should-retry"] == "false"
    assert refusal(ask(account, "alias/fast", stream=True)) == NOT_FOUND
    assert records(account) == []


def test_another_accounts_alias_does_not_resolve(
    account: Customer, gateway: GatewayServer, open_account: OpenAccount
) -> None:
    create(account)
    assert refusal(ask(open_account(gateway), "alias/fast")) == NOT_FOUND


def test_each_account_has_its_own_meaning_of_a_name(
    account: Customer, gateway: GatewayServer, open_account: OpenAccount
) -> None:
    other = open_account(gateway)
    create(account, "sim/test/echo/FRPAR")
    create(other, "sim/test/echo/DEFRA")
    assert answer(account, "alias/fast")["model"] == "sim/test/echo/FRPAR"
    assert answer(other, "alias/fast")["model"] == "sim/test/echo/DEFRA"


def test_the_alias_is_the_one_that_model_names_wherever_the_body_mentions_others(account: Customer) -> None:
    create(account, "sim/test/echo/FRPAR", "fast")
    create(account, "sim/test/echo/DEFRA", "slow")
    messages = b'"messages": [{"role": "user", "content": "hello"}]'
    for text in (
        b'{"model": "alias/slow", %b, "metadata": {"model": "alias/fast"}}',
        b'{"metadata": {"model": "alias/fast"}, %b, "model": "alias/slow"}',
        b'{"model": "alias/fast", "model": "alias/slow", %b}',
        b'{"metadata": {"model": "alias/absent"}, "model": "alias/sl\\u006fw", %b}',
    ):
        with connect(account.gateway) as raw, raw.makefile("rb") as answers:
            raw.sendall(posted(account, text % messages))
            assert read_response(answers).json()["model"] == "sim/test/echo/DEFRA"


def test_a_repoint_acts_on_a_request_that_has_not_come_whole(account: Customer) -> None:
    create(account, "sim/test/echo/FRPAR")
    sent = posted(account, b'{"model": "alias/fast", "messages": [{"role": "user", "content": "hello"}]}')
    with connect(account.gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(sent[:-1])
        repoint(account, "sim/test/echo/DEFRA")
        raw.sendall(sent[-1:])
        assert read_response(answers).json()["model"] == "sim/test/echo/DEFRA"


def posted(customer: Customer, body: bytes) -> bytes:
    """Returns a chat completion's head and body."""
    head = f"Host: localhost\r\nAuthorization: Bearer {customer.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    return b"POST /v1/chat/completions HTTP/1.1\r\n" + head.encode() + body


@pytest.mark.parametrize("name", ["Fast", "FAST", "-fast", "", "fa/st", "a" * 65, "fast\n", "\N{KELVIN SIGN}"])
def test_a_request_spells_the_name_as_the_rule_says(account: Customer, name: str) -> None:
    create(account)
    wanted = (400, "invalid_request_error", "invalid_alias_name", "model")
    assert refusal(ask(account, f"alias/{name}")) == wanted


def test_an_alias_of_an_unfitting_modality_is_refused_per_endpoint(account: Customer) -> None:
    create(account, "sim/test/embedding/FRPAR")
    assert refusal(ask(account, "alias/fast")) == (400, "invalid_request_error", "invalid_request_error", "model")


def test_an_alias_to_what_is_soft_disabled_is_unavailable_and_never_rerouted(account: Customer) -> None:
    create(account, "sim/test/resting/FRPAR")
    reply = ask(account, "alias/fast")
    assert refusal(reply) == (503, "provider_unavailable", "model_unavailable", "model")
    assert "Being moved to new hardware" in message(reply)


def test_a_renamed_alias_answers_to_its_new_name_only(account: Customer) -> None:
    create(account)
    assert account.http.patch(f"{ALIASES}/fast", json={"name": "quick"}).status_code == 200
    assert refusal(ask(account, "alias/fast")) == NOT_FOUND
    assert answer(account, "alias/quick")["gateway_metadata"]["requested_alias"] == "alias/quick"


def test_a_request_in_flight_keeps_what_it_was_admitted_with(account: Customer) -> None:
    create(account, "sim/test/slow-chunks/FRPAR")
    hello = [{"role": "user", "content": "hello there"}]
    body = {"model": "alias/fast", "messages": hello, "stream": True, "max_tokens": 20}
    with account.http.post("/v1/chat/completions", json=body, stream=True) as open_stream:
        frames = open_stream.iter_lines()
        assert next(frames)  # it has begun
        changed = account.http.patch(f"{ALIASES}/fast", json={"name": "quick", "target": "sim/test/echo/DEFRA"})
        assert changed.status_code == 200
        rest = [json.loads(line.removeprefix(b"data: ")) for line in frames if line.startswith(b"data: {")]
    assert {chunk["model"] for chunk in rest} == {"sim/test/slow-chunks/FRPAR"}
    assert rest[-1]["gateway_metadata"]["requested_alias"] == "alias/fast"
    assert answer(account, "alias/quick")["model"] == "sim/test/echo/DEFRA"
    first, _ = records(account)
    assert (first.model, first.region) == ("test/slow-chunks", "FRPAR")
    rows = account.http.get(f"{ALIASES}/quick/stats").json()["breakdown"]
    assert [(row["model"], row["requests"]) for row in rows] == [("sim/test/echo", 1), ("sim/test/slow-chunks", 1)]


def test_a_chunked_body_is_read(account: Customer) -> None:
    body = (part for part in (b'{"name": "fast", ', b'"target": "sim/test/', b'echo/FRPAR"}'))
    assert account.http.post(ALIASES, data=body).status_code == 201
    renamed = account.http.patch(f"{ALIASES}/fast", data=(part for part in (b'{"name": ', b'"quick"}')))
    assert renamed.json()["full_name"] == "alias/quick"


def test_a_connection_goes_on_after_a_refusal_that_left_the_body_unread(account: Customer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", account.gateway.port, timeout=20)
    headers = {"Authorization": f"Bearer {account.key}", "Content-Type": "application/json"}
    with closing(connection):
        for _ in range(3):
            connection.request("PATCH", f"{ALIASES}/absent", json.dumps({"name": "x" * 10_000}), headers)
            reply = connection.getresponse()
            assert (reply.status, json.loads(reply.read())["error"]["code"]) == (404, "alias_not_found")


def test_a_repoint_acts_on_the_very_next_request_of_every_worker(
    pair_gateway: GatewayServer, open_account: OpenAccount
) -> None:
    customer = open_account(pair_gateway)
    create(customer, "sim/test/echo/FRPAR")
    with ExitStack() as stack:
        workers = one_connection_to_each_worker(customer, stack)
        assert len(workers) == 2
        for target in ("sim/test/echo/DEFRA", "sim/test/chunks/FRPAR", "simus/test/echo/USQAS", "sim/test/echo/FRPAR"):
            repoint(customer, target)
            assert [asked(connection, customer)["model"] for connection in workers.values()] == [target, target]
        assert customer.http.delete(f"{ALIASES}/fast").status_code == 204
        codes = [asked(connection, customer)["error"]["code"] for connection in workers.values()]
        assert codes == ["alias_not_found", "alias_not_found"]


def one_connection_to_each_worker(customer: Customer, stack: ExitStack) -> dict[int, http.client.HTTPConnection]:
    """Opens connections, by the process id of the worker that serves each."""
    gateway = customer.gateway
    found: dict[int, http.client.HTTPConnection] = {}
    for _ in range(MOST_CONNECTIONS):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        stack.callback(connection.close)
        asked(connection, customer)
        found.setdefault(worker_of(connection, gateway), connection)
        if len(found) == len(gateway.worker_pids()):
            break
    return found


def worker_of(connection: http.client.HTTPConnection, gateway: GatewayServer) -> int:
    """Returns the worker that holds the other end of a connection, as Linux lists sockets."""
    ours, theirs = connection.sock.getsockname()[1], gateway.port
    ends = re.compile(rf"\s*\d+: \w+:{theirs:04X} \w+:{ours:04X} ")
    (line,) = (line for line in Path("/proc/net/tcp").read_text().splitlines() if ends.match(line))
    socket = f"socket:[{line.split()[9]}]"
    holders = [pid for pid in gateway.worker_pids() if socket in open_files(pid)]
    assert len(holders) == 1
    return holders[0]


def open_files(pid: int) -> set[str]:
    """Returns the process's open files, except those that are closed meanwhile."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(link.readlink()))
    return found


def asked(connection: http.client.HTTPConnection, customer: Customer) -> dict[str, Any]:
    """Sends one question on this connection."""
    question = {"model": "alias/fast", "messages": [{"role": "user", "content": "hello there"}]}
    headers = {"Authorization": f"Bearer {customer.key}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(question), headers)
    body: dict[str, Any] = json.loads(connection.getresponse().read())
    return body
