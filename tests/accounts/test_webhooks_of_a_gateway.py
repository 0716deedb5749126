"""A gateway's own workers send webhooks, and so does `maintain` without workers (docs/webhooks.md#sent-again)."""

from collections.abc import Iterator

import pytest

from tests.accounts.receiver import Receiver
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.servers.customer import Customer, GatewaySession

MANAGEMENT_KEY = """
from accounts import keys
from accounts.models import Account, KeyKind
print(keys.issue(Account.objects.get(pk="{account}"), name="manager", kind=KeyKind.MANAGEMENT)[1])
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


def manager(customer: Customer) -> GatewaySession:
    token = customer.gateway.manage("shell", "-v0", "-c", MANAGEMENT_KEY.format(account=customer.id)).ok()
    return GatewaySession(customer.gateway.origin, token)


def test_a_worker_sends_what_a_command_did_and_maintain_what_is_left(
    start_gateway: StartGateway, open_account: OpenAccount, receiver: Receiver
) -> None:
    gateway = start_gateway(GATEWAY_WEBHOOK_HOSTS="127.0.0.0/8", WEB_CONCURRENCY="2")
    customer = open_account(gateway)
    with manager(customer) as http:
        made = http.post("/v1/webhooks", json={"url": receiver.url, "events": ["key.*"]}).json()
        gateway.manage("create_key", customer.name, "--name", "another").ok()
        assert eventually(lambda: len(receiver.received) == 1)
        assert receiver.received[0].verified(made["secret"])["type"] == "key.created"
        listing = f"/v1/webhooks/{made['id']}/deliveries"
        assert eventually(lambda: http.get(listing).json()["data"][0]["delivered_at"] is not None)
        assert http.post(f"/v1/webhooks/{made['id']}/test").status_code == 202
        assert eventually(lambda: len(receiver.received) == 2)
        refused = http.patch(f"/v1/webhooks/{made['id']}", json={"url": "https://10.0.0.1/"})
        assert refused.json()["error"]["param"] == "url"
        assert http.get("/v1/webhooks").json()["data"][0]["url"] == receiver.url
    gateway.stop()
    gateway.manage("create_key", customer.name, "--name", "a third").ok()
    assert "sent 1 events to webhooks" in gateway.manage("maintain").ok()
    assert len(receiver.received) == 3
