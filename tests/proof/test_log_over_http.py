"""Anybody can read the log's checkpoint, keys and tiles. Another implementation verifies receipts with them."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
import requests
from tlog_scales.backend import make_backend
from tlog_scales.reader import TilesReader
from tlog_scales.signing import Vkey
from tlog_scales.tiles import leaf_hash
from tlog_scales.tlog import Checkpoint, ConsistencyProof, InclusionProof
from tlog_scales.utils import b64dec

from tests.patience import eventually
from tests.proof.customer import VERIFY
from tests.proof.log import KEY, ORIGIN
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

LEAVES = 300  # more than a tile
CHAT = {"model": "sim/test/echo", "messages": [{"role": "user", "content": "Hello"}]}


def get(gateway: GatewayServer, path: str, method: str = "GET") -> requests.Response:
    headers = {"Accept-Encoding": "identity"}  # Django's compression adds bytes at random
    return requests.request(method, f"{gateway.origin}/log/{path}", headers=headers, timeout=30, allow_redirects=False)


def checkpoint_of(gateway: GatewayServer, least: int = 1) -> Checkpoint:
    """Returns the published checkpoint once it has so many leaves."""
    assert eventually(lambda: (reply := get(gateway, "checkpoint")).ok and int(reply.text.split("\n")[1]) >= least)
    return Checkpoint.from_text(get(gateway, "checkpoint").text)


@pytest.fixture(scope="module")
def customer(log_gateway: GatewayServer) -> Iterator[Customer]:
    """Opens a customer once the log has more leaves than fit in a tile."""
    log_gateway.manage("open_accounts", *(f"crowd-{number}" for number in range(LEAVES))).ok()
    with closing(Customer.open(log_gateway)) as opened:
        checkpoint_of(log_gateway, LEAVES)
        yield opened


@pytest.fixture
def reader(log_gateway: GatewayServer, customer: Customer) -> Iterator[TilesReader]:  # it fills the log
    backend = make_backend(f"{log_gateway.origin}/log")
    yield TilesReader(backend)
    backend.session.close()  # type: ignore[attr-defined]  # of the HTTP backend


def test_a_checkpoint_is_signed_by_the_published_keys(log_gateway: GatewayServer, customer: Customer) -> None:
    checkpoint = checkpoint_of(log_gateway)
    lines = get(log_gateway, "key").text.splitlines()
    assert lines == [*map(str, KEY.verifier_keys)]
    assert checkpoint.origin == ORIGIN
    for line in lines:
        checkpoint.verify(Vkey.from_string(line))


def test_the_tiles_lead_to_the_checkpoints_root(reader: TilesReader) -> None:
    checkpoint = reader.get_checkpoint()
    assert checkpoint.size >= LEAVES
    assert reader.calculate_root_hash() == checkpoint.root_hash


def test_a_receipt_is_proved_by_the_tiles_as_well(customer: Customer, reader: TilesReader) -> None:
    answer = customer.http.post("/v1/chat/completions", json=CHAT)
    path = f"/v1/generation/{answer.headers['X-Generation-Id']}/receipt"
    old = reader.get_checkpoint()
    assert eventually(lambda: customer.http.get(path).status_code == 200)
    receipt = customer.http.get(path, params={"size": old.size}).json()

    checkpoint = Checkpoint.from_text(receipt["checkpoint"])
    head, _, note = receipt["proof"].partition("\n\n")
    mark, index, *hashes = head.split("\n")
    assert (mark, index, note) == ("c2sp.org/tlog-proof@v1", f"index {receipt['index']}", receipt["checkpoint"])
    inclusion = InclusionProof(receipt["index"], checkpoint.size, [*map(b64dec, hashes)])
    inclusion.check(leaf_hash(receipt["leaf"].encode()), checkpoint.root_hash)
    consistency = ConsistencyProof(old.size, checkpoint.size, [*map(b64dec, receipt["consistency"])])
    consistency.check(old.root_hash, checkpoint.root_hash)

    reader.set_size(checkpoint.size)
    assert reader.get_inclusion_proof(receipt["index"], checkpoint.size) == inclusion
    assert reader.get_consistency_proof(old.size, checkpoint.size) == consistency
    assert json.loads(receipt["leaf"])["generation_id"] == answer.headers["X-Generation-Id"]


def test_partial_tiles_are_the_beginnings_of_tiles(log_gateway: GatewayServer, customer: Customer) -> None:
    full = get(log_gateway, "tile/0/000").content
    assert len(full) == 256 * 32
    for width in (1, 44, 255):
        assert get(log_gateway, f"tile/0/000.p/{width}").content == full[: width * 32]
    assert len(get(log_gateway, "tile/0/001.p/44").content) == 44 * 32
    assert len(get(log_gateway, "tile/1/000.p/1").content) == 32


def test_answers_can_be_cached_and_read_by_any_page(log_gateway: GatewayServer, customer: Customer) -> None:
    types = {
        "checkpoint": ("text/plain; charset=utf-8", "public, max-age=5"),
        "key": ("text/plain; charset=utf-8", "public, max-age=5"),
        "verify.py": ("text/x-python; charset=utf-8", "public, max-age=5"),
        "tile/0/000": ("application/octet-stream", "public, max-age=31536000, immutable"),
        "tile/0/000.p/3": ("application/octet-stream", "public, max-age=31536000, immutable"),
    }
    for path, expected in types.items():
        answer, head = get(log_gateway, path), get(log_gateway, path, "HEAD")
        assert (answer.headers["Content-Type"], answer.headers["Cache-Control"]) == expected
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["Content-Length"] == str(len(answer.content))
        for each in (answer, head):
            assert each.headers["Access-Control-Allow-Origin"] == "*"
            assert "Set-Cookie" not in each.headers
            assert "Cookie" not in each.headers.get("Vary", "")


MISSING = [
    "",
    "checkpoint/",
    "checkpoint%0a",
    "entries/000",
    "tile/entries/000",
    "tile/entries/000.p/1",
    "tile/0/002",
    "tile/0/001",  # not full yet
    "tile/0/001.p/255",
    "tile/0/000.p/0",
    "tile/0/000.p/01",
    "tile/0/000.p/256",
    "tile/0/000.p/999",
    "tile/0/000.p/",
    "tile/0/000%0a",
    "tile/0/0",
    "tile/0/0000",
    "tile/0/x000/000",  # it is 000
    "tile/0/x000/x001/000",
    "tile/0/001/000",
    "tile/0/-01",
    "tile/00/000",
    "tile/-1/000",
    "tile/1/000",
    "tile/9/000.p/1",
    "tile/63/000.p/1",
    "tile/64/000.p/1",
    "tile/99/000",
    "tile/100/000",
    "tile/0/x009/x223/x372/x036/x854/x775/808",  # 2**63
    "tile/0/x999/x999/x999/x999/x999/999",
    "tile/0/" + "x999/" * 40 + "999",
    "tile/0/\u0661\u0660\u0660",  # digits of another alphabet
    "tile/0/..%2f..%2fcheckpoint",
]


@pytest.mark.parametrize("path", MISSING)
def test_what_the_log_does_not_have_is_404_in_a_line(
    path: str,
    log_gateway: GatewayServer,
    customer: Customer,  # it fills the log
) -> None:
    answer = get(log_gateway, path)
    assert (answer.status_code, answer.text) == (404, "not found\n")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Set-Cookie" not in answer.headers


def test_nothing_can_be_sent_to_the_log(log_gateway: GatewayServer) -> None:
    for method in ("POST", "PUT", "DELETE"):
        answer = get(log_gateway, "checkpoint", method)
        assert (answer.status_code, answer.content) == (405, b"")
        assert "Set-Cookie" not in answer.headers


def test_a_gateway_without_a_key_has_no_log(gateway: GatewayServer) -> None:
    for path in ("checkpoint", "key", "tile/0/000.p/1"):
        assert get(gateway, path).status_code == 404


def test_every_gateway_serves_the_program_for_customers(gateway: GatewayServer) -> None:
    assert get(gateway, "verify.py").content == VERIFY.read_bytes()
