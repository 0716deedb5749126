"""`disable_provider` takes a provider out of a running gateway, and `enable_provider` brings it back."""

import pytest

from tests.chat import PATH, question
from tests.conftest import StartGateway
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

REASON = "It answers in tongues."


@pytest.fixture
def gateway(start_gateway: StartGateway) -> GatewayServer:
    return start_gateway()


def test_its_requests_are_refused_with_the_reason_until_it_is_served_again(
    gateway: GatewayServer, account: Customer
) -> None:
    def status() -> int:
        return account.http.post(PATH, json=question("echo")).status_code

    assert status() == 200
    assert gateway.manage("disable_provider", "sim", "--reason", REASON).ok() == "The provider sim has been disabled."
    assert eventually(lambda: status() == 503)
    assert REASON in account.http.post(PATH, json=question("echo")).json()["error"]["message"]
    assert gateway.manage("enable_provider", "SIM").ok() == "The provider sim is served again."
    assert eventually(lambda: status() == 200)


def test_what_cannot_be_done_is_refused_and_changes_nothing(gateway: GatewayServer) -> None:
    assert "There is no provider 'nobody'." in gateway.manage("disable_provider", "nobody", "--reason", REASON).stderr
    assert "The provider sim is not disabled." in gateway.manage("enable_provider", "sim").stderr
    for reason in ("", " ", "x" * 501):
        assert (
            "--reason takes 1 to 500 characters."
            in gateway.manage("disable_provider", "sim", "--reason", reason).stderr
        )
    assert gateway.query("SELECT disabled_reason FROM catalogue_provider WHERE slug = 'sim'") == [("",)]
