"""A stall, a killed worker and a drain are settled on the Messages API as on every other (test_crashes.py)."""

import contextlib

import requests

from inference.estimator import tokens_in
from tests import bills
from tests.conftest import OpenAccount, StartGateway
from tests.inference.messages.events import HELLO, PATH, Events, stream
from tests.inference.recovery import catalogue, until_checkpointed
from tests.servers.customer import Customer
from tests.servers.simulator import Simulator


def begun(customer: Customer) -> requests.Response:
    body = {"model": "sim/test/long", "max_tokens": 4096, "messages": HELLO, "stream": True}
    reply = customer.http.post(PATH, json=body, stream=True)
    assert reply.status_code == 200, reply.text
    return reply


def rest_of(reply: requests.Response) -> bytes:
    content = b""
    with contextlib.suppress(requests.RequestException), reply:
        for block in reply.iter_content(chunk_size=None):
            content += block
    return content


def test_a_stall_a_killed_worker_and_a_drain_are_settled_at_what_was_delivered(
    start_gateway: StartGateway, open_account: OpenAccount, simulator: Simulator
) -> None:
    server = start_gateway(catalogue=catalogue(simulator), GATEWAY_STREAM_IDLE_TIMEOUT="1", GATEWAY_DRAIN_TIMEOUT="3")
    customer = open_account(server)
    stalled = stream(customer, "sim/test/stall")
    assert stalled.last["type"] == "error"

    killed = begun(customer)
    until_checkpointed(server, 1)
    server.kill_worker()
    cut = rest_of(killed)
    server.query("UPDATE billing_checkpoint SET beat_at = '2026-01-01 00:00:00'")
    server.manage("maintain", "--once").ok()
    text = "".join(Events.read([cut.rpartition(b"\n\n")[0] + b'\n\nevent: error\ndata: {"type":"error"}\n\n']).text)

    drained = begun(customer)
    server.stop()
    stopped = Events.read([rest_of(drained)])
    assert stopped.last["type"] == "error"

    records = bills.records(customer)
    assert [each.ending for each in records] == ["stalled", "worker_stopped", "worker_stopped"]
    assert all(each.interrupted and each.usage_estimated for each in records)
    for record, delivered in zip(records, (stalled.text, text, stopped.text), strict=True):
        assert 0 < record.completion_tokens <= tokens_in(len(delivered.encode()))
    assert len(bills.debits(customer)) == 3
