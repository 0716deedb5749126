"""A route's daily token quota is counted from the first request to the refusal and until the reset."""

from tests.chat import HELLO
from tests.conftest import OpenAccount
from tests.servers.gateway import GatewayServer

PINNED = {"model": "sim/test/quota", "messages": HELLO}


def test_the_request_that_crosses_the_quota_is_served_and_the_next_is_not(
    pair_gateway: GatewayServer, open_account: OpenAccount
) -> None:
    assert "2 workers share no cache" in pair_gateway.log  # it warns at its start
    customer, other = open_account(pair_gateway), open_account(pair_gateway)
    spent = 0
    while spent < 50:
        answer = customer.http.post("/v1/chat/completions", json=PINNED)
        assert answer.status_code == 200, answer.text
        spent += answer.json()["usage"]["total_tokens"]
    refused = other.http.post("/v1/chat/completions", json=PINNED)
    assert refused.status_code == 503
    error = refused.json()["error"]
    assert (error["type"], error["code"], error["param"]) == (
        "provider_unavailable",
        "provider_quota_exhausted",
        "model",
    )
    assert "FRPAR" in error["message"]
    assert 1 <= int(refused.headers["Retry-After"]) <= 86_400
    assert refused.headers["x-should-retry"] == "false"
    assert "sim/test/quota" not in {model["id"] for model in other.http.get("/v1/models").json()["data"]}
