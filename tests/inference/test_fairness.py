"""A worker's requests take turns: an upstream that sends faster than it is read blocks no other request."""

from concurrent.futures import ThreadPoolExecutor

import requests

from tests.chat import PATH, question
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

WORDS = 50_000  # an event each: two seconds of work
# Some two hundred are served, seventy on a busy machine; without turns only ten or twenty, before the answer and after
# its end.
TURNS = 40


def test_others_are_served_while_an_answer_pours_in(gateway: GatewayServer, account: Customer) -> None:
    messages = [{"role": "user", "content": "word " * WORDS}]
    body = question("echo", max_tokens=WORDS) | {"messages": messages}
    served = 0
    with ThreadPoolExecutor(1) as pool, requests.Session() as other:
        pouring = pool.submit(account.http.post, PATH, json=body)
        while not pouring.done():
            served += other.get(f"{gateway.origin}/healthz", timeout=10).status_code == 200
    reply = pouring.result()
    assert reply.status_code == 200
    assert reply.content.count(b"word") == WORDS
    assert served >= TURNS
