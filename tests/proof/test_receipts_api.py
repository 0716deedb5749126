"""A receipt proves that a request's ledger entry is in the log: over the API, and as a member's download."""

import json

import pytest
from django.test import Client

from accounts import keys
from accounts.models import User
from proof import sequencer
from proof.receipts import verify_receipt
from tests.billing.records import MEMBER, open_for, serve
from tests.conftest import OpenAccount
from tests.patience import eventually
from tests.proof.log import KEY, logged
from tests.proof.short_intervals import SECONDS
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer

CHAT = {"model": "sim/test/echo", "messages": [{"role": "user", "content": "Hello"}]}
EACH_PATH = ("/v1/generation/{}/receipt", "/api/v1/generation/{}/receipt", "/v1/generation/{}/receipt/")


@pytest.fixture
def customer(log_gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(log_gateway)


def served(customer: Customer) -> str:
    """Sends a request and returns its id."""
    return customer.http.post("/v1/chat/completions", json=CHAT).headers["X-Generation-Id"]


def with_receipt(customer: Customer) -> str:
    """Sends a request and returns its id once it has a receipt."""
    made = served(customer)
    assert eventually(lambda: customer.http.get(EACH_PATH[0].format(made)).status_code == 200)
    return made


def test_a_receipt_is_ready_with_the_next_checkpoint(customer: Customer) -> None:
    made = served(customer)
    waits: list[str] = []

    def is_ready() -> bool:
        answer = customer.http.get(EACH_PATH[0].format(made))
        if answer.status_code == 404:
            assert answer.json()["error"]["code"] == "receipt_not_ready"
            waits.append(answer.headers["Retry-After"])
        return answer.status_code == 200

    assert eventually(is_ready)
    assert {*waits} <= {str(round(SECONDS))}
    receipts = [customer.http.get(path.format(made)).json() for path in EACH_PATH]
    assert receipts[0]["object"] == "receipt"
    assert receipts[0]["generation_id"] == json.loads(receipts[0]["leaf"])["generation_id"] == made
    assert {receipt["leaf"] for receipt in receipts} == {receipts[0]["leaf"]}


def test_a_receipt_is_consistent_with_an_older_checkpoint(customer: Customer) -> None:
    made = with_receipt(customer)
    whole = customer.http.get(EACH_PATH[0].format(made)).json()
    size = int(whole["checkpoint"].split("\n")[1])
    for older in (0, 1, size):
        receipt = customer.http.get(EACH_PATH[0].format(made), params={"size": older}).json()
        assert receipt["consistent_with"] == older
        assert isinstance(receipt["consistency"], list)
    assert "consistency" not in whole


@pytest.mark.parametrize("size", ["-1", "x", "1.5", "", "9223372036854775807", "9" * 40, "\u0661"])
def test_a_size_that_the_log_never_had_is_refused(size: str, customer: Customer) -> None:
    answer = customer.http.get(EACH_PATH[0].format(with_receipt(customer)), params={"size": size})
    if size == "\u0661":  # int() reads these digits
        assert answer.status_code == 200
        return
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "size")


def test_a_receipt_belongs_to_its_account(customer: Customer, open_account: OpenAccount) -> None:
    made = with_receipt(customer)
    other = open_account(customer.gateway)
    for path in EACH_PATH:
        answer = other.http.get(path.format(made))
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        with GatewaySession(customer.gateway.origin) as nobody:
            assert nobody.get(path.format(made)).status_code == 401


@pytest.mark.parametrize("made", ["gen-0", "x", "gen-" + "0" * 32, "%00", "gen-018f0000-0000-7000-8000-000000000000"])
def test_an_unknown_generation_has_no_receipt(made: str, customer: Customer) -> None:
    assert customer.http.get(EACH_PATH[0].format(made)).status_code == 404


@pytest.mark.parametrize("kind", ["inference", "management"])
def test_any_key_of_the_account_reads_the_receipt(kind: str, customer: Customer) -> None:
    made = with_receipt(customer)
    token = customer.another_key("another", "--kind", kind)
    with GatewaySession(customer.gateway.origin, token) as another:
        assert another.get(EACH_PATH[0].format(made)).status_code == 200


def test_a_gateway_without_a_key_says_so(account: Customer) -> None:
    answer = account.http.get(EACH_PATH[0].format(served(account)))
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "This gateway keeps no transparency log."
    assert "Retry-After" not in answer.headers


@pytest.mark.django_db
def test_a_request_that_was_not_billed_has_no_receipt(client: Client) -> None:
    acme = open_for()
    record, token = serve(acme, priced=False), keys.issue(acme, name="reader")[1]
    logged(record)
    answer = client.get(EACH_PATH[0].format(record.public_id), headers={"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert "was not billed" in answer.json()["error"]["message"]


@pytest.mark.django_db
def test_a_member_downloads_the_receipt_from_the_records_page(client: Client) -> None:
    record = serve(open_for(MEMBER))
    client.force_login(User.objects.get(email=MEMBER))
    address = f"/usage/records/{record.public_id}/receipt"
    assert address not in client.get(f"/usage/records/{record.public_id}").content.decode()
    logged(record)
    assert address in client.get(f"/usage/records/{record.public_id}").content.decode()
    answer = client.get(address)
    assert answer["Content-Disposition"] == f'attachment; filename="{record.public_id}.receipt.json"'
    assert verify_receipt(answer.json(), KEY).startswith(f"{record.public_id}: leaf 1 of 2 ")


@pytest.mark.django_db
def test_a_receipt_that_is_not_ready_leads_back_to_the_records_page(client: Client) -> None:
    record = serve(open_for(MEMBER))
    client.force_login(User.objects.get(email=MEMBER))
    sequencer.append(KEY)
    page = f"/usage/records/{record.public_id}"
    answer = client.get(f"{page}/receipt", follow=True)
    assert answer.redirect_chain == [(page, 302)]
    assert "This request has no receipt yet. Try again in a minute." in answer.content.decode()


@pytest.mark.django_db
def test_a_stranger_gets_no_receipt(client: Client) -> None:
    record = logged(serve(open_for(MEMBER)))
    address = f"/usage/records/{record.public_id}/receipt"
    assert client.get(address).status_code == 302  # to the sign-in
    client.force_login(User.objects.create_user("stranger@example.com"))
    assert client.get(address).status_code == 404
    assert client.get("/usage/records/gen-0/receipt").status_code == 404
