"""A call fails: the member finds it by the id that it was answered with and reads why, and so do staff."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import beyond, signed_in
from tests.chat import HELLO, answer
from tests.patience import eventually
from tests.servers.customer import Customer

pytestmark = pytest.mark.long

PHONE = 390


def kept(customer: Customer) -> int:
    """The number of the account's failures that are written."""
    rows = customer.gateway.query(
        "SELECT count(*) FROM billing_requestfailure WHERE account_id = %s", [customer.id.replace("-", "")]
    )
    return int(rows[0][0])


def test_a_failed_call_is_found_and_explained_to_the_member_and_to_staff(chromium: Browser, customer: Customer) -> None:
    answer(customer, "echo")
    body = {"model": "sim/test/status-500", "messages": HELLO}
    reply = customer.http.post("/v1/chat/completions", json=body)
    request_id, message = reply.headers["X-Request-Id"], reply.json()["error"]["message"]
    customer.http.get("/v1/generation/gen-unknown")
    assert eventually(lambda: kept(customer) == 2)  # with the worker's next beat

    with signed_in(chromium, customer) as page:
        page.get_by_role("link", name="Usage", exact=True).click()
        page.get_by_role("link", name="All requests").click()
        page.get_by_label("Outcome").select_option("Failed (5xx)")
        page.get_by_role("form", name="Filters").get_by_role("button", name="Apply").click()
        found = page.get_by_role("table").get_by_role("row").filter(has_text="failed 503")
        expect(found).to_have_count(1)  # neither the one that was served nor the one that was refused
        expect(found).to_contain_text("sim/test/status-500/FRPAR")
        page.get_by_label("Request or generation id").fill(request_id)
        page.get_by_role("button", name="Find").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Failed: 503 provider_error")
        expect(page.get_by_role("region", name="What happened")).to_contain_text(message)
        expect(page.get_by_role("region", name="What happened")).to_contain_text("Retry with exponential backoff")
        page.set_viewport_size({"width": PHONE, "height": 800})
        assert beyond(page, PHONE) == []
        page.get_by_role("link", name="Requests", exact=True).click()
        assert beyond(page, PHONE) == []

    with signed_in(chromium, customer, staff=True) as page:
        page.goto("/admin/")
        page.get_by_role("link", name="Request failures").click()
        page.locator("#searchbar").fill(request_id)
        page.keyboard.press("Enter")
        expect(page.locator("#result_list tbody tr")).to_have_count(1)
        page.locator("#result_list tbody a").first.click()
        expect(page.locator("#content")).to_contain_text(message)
        expect(page.locator("#content")).to_contain_text("sim")
        expect(page.get_by_role("button", name="Save")).to_have_count(0)
