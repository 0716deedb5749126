"""A request that a gateway serves crosses lines of budgets and of the balance, and the owner gets the mails."""

import json
from decimal import Decimal

from tests.chat import HELLO, HELLO_COST
from tests.conftest import StartGateway
from tests.patience import eventually
from tests.servers.customer import GatewaySession

NAME = "Alerts"
BUDGET_MAIL = f"Subject: {NAME}: 50 % of the budget of key test is spent"
BALANCE_MAIL = f"Subject: Low balance: {NAME}"
BELOW_TEN = 10 * 10**10 - 1  # in units of money


def test_a_served_request_is_followed_by_one_mail_for_each_line_that_it_crossed(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    account = gateway.manage("create_account", NAME, "--credit", "10", "--owner", "owner@alerts.example").ok()
    key = gateway.manage("create_key", NAME, "--name", "test").ok()
    budget = {"amount": f"{2 * Decimal(HELLO_COST):f}", "period": "month"}
    gateway.manage("set_policy", NAME, json.dumps({"budget": budget, "alerts": [50, 80]}), "--key", "test").ok()
    gateway.query(
        "INSERT INTO billing_balanceline (id, account_id, amount) VALUES (%s, %s, %s)", [account, account, BELOW_TEN]
    )
    with GatewaySession(gateway.origin, key) as http:
        reply = http.post("/v1/chat/completions", json={"model": "sim/test/echo", "messages": HELLO})
    assert reply.status_code == 200
    assert eventually(lambda: gateway.query("SELECT count(*) FROM billing_budgetalert") == [(1,)])
    # A worker's beat may have sent them before the command does.
    sent = gateway.manage_subprocess("maintain", "--once").stdout + gateway.log
    assert (sent.count(BUDGET_MAIL), sent.count(BALANCE_MAIL), sent.count("80 %")) == (1, 1, 0)
    assert "Subject: " not in gateway.manage_subprocess("maintain", "--once").stdout
