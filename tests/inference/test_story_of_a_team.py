"""A key of the HR team can do only what it is for: the example of docs/policies.md, set by command, over HTTP."""

import json
import re
from decimal import Decimal

import pytest

from tests.catalogue import catalogue_for, model, provider, region
from tests.chat import HELLO, HELLO_COST
from tests.conftest import StartGateway
from tests.patience import eventually
from tests.servers.customer import GatewaySession
from tests.servers.gateway import GatewayServer
from tests.servers.process import ROOT
from tests.servers.simulator import Simulator

ACCOUNT = "acme"
OWNER = "owner@acme.example"
PLACES = {"FIHEL": {"name": "Helsinki", "country": "FI", "eu": True, "eea": True}}


@pytest.fixture
def gateway(start_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    """Offers a model at a European provider that keeps nothing, at one that keeps prompts, and at an American one."""
    everywhere = [region("FRPAR"), region("DEFRA"), region("USQAS")]
    file = catalogue_for(
        simulator.url,
        model("letter", provider="discreet", regions=everywhere, upstream_model="echo"),
        model("letter", provider="keeper", regions=everywhere, upstream_model="echo"),
        model("letter", provider="american", regions=everywhere, upstream_model="echo"),
    )
    file["places"] |= PLACES
    american = {"country": "US", "eu_native": False, "us_legal_reach": True}
    file["providers"] += [
        provider("discreet", simulator.url, retention="none"),
        provider("keeper", simulator.url, retention=30),
        provider("american", simulator.url, retention="none", **american),
    ]
    return start_gateway(catalogue=file)


def the_documents_policy() -> str:
    found = re.search(r"set_policy acme --key hr '(.*?)'", (ROOT / "docs" / "policies.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_a_key_of_the_hr_team_can_do_only_what_it_is_for(gateway: GatewayServer) -> None:
    gateway.manage("create_account", ACCOUNT, "--credit", "100", "--owner", OWNER).ok()
    key = gateway.manage("create_key", ACCOUNT, "--name", "hr").ok()
    gateway.manage("set_policy", ACCOUNT, the_documents_policy(), "--key", "hr").ok()
    with GatewaySession(gateway.origin, key) as http:

        def refusal(model_id: str) -> str:
            reply = http.post("/v1/chat/completions", json={"model": model_id, "messages": HELLO})
            error = reply.json()["error"]
            return f"{reply.status_code} {error['code']}: {error['message']}"

        # 1. It sees only what it may use.
        listed = {entry["id"]: entry for entry in http.get("/v1/models").json()["data"]}
        assert set(listed) == {"discreet/test/letter", "auto/test/letter"}
        assert [each["locode"] for each in listed["discreet/test/letter"]["regions"]] == ["FRPAR", "DEFRA"]
        # 2. It is served by an EU-sovereign route in one of three places that keeps nothing.
        body = {"model": "auto/test/letter", "messages": HELLO}
        answer = http.post("/v1/chat/completions", json=body).json()
        assert answer["model"] == "discreet/test/letter/FRPAR"
        assert len(answer["gateway_metadata"]["routes_excluded"]) == 7
        # 3. Everything else is refused, by the rule that it breaks.
        assert refusal("keeper/test/letter") == (
            "403 policy_denied: The key's policy does not allow 'keeper/test/letter/FRPAR', "
            "which is not known to keep no data."
        )
        assert "which is not 'eu-sovereign'" in refusal("american/test/letter/FRPAR")
        assert "which is not 'eu-sovereign'" in refusal("discreet/test/letter/USQAS")
        assert refusal("sim/test/nobody").startswith("404 not_found")
        # 4. At 80 % of its budget the owner is told, and beyond it requests are refused until it renews.
        small = json.loads(the_documents_policy())
        small["budget"]["amount"] = f"{2 * Decimal(HELLO_COST):f}"
        gateway.manage("set_policy", ACCOUNT, json.dumps(small), "--key", "hr").ok()
        assert http.post("/v1/chat/completions", json=body).status_code == 200
        assert refusal("auto/test/letter").startswith(
            "402 budget_exceeded: The key's budget of 0.0000072 EUR per month"
        )

    def told() -> bool:
        return (
            "80 % of the budget of key hr is spent"
            in gateway.manage_subprocess("maintain", "--once").stdout + gateway.log
        )

    assert eventually(told)
