"""The Playground works in a real browser: a conversation with a model, its cost, failures, and the end of its key."""

import ast
import re
from decimal import Decimal

import pytest
import requests
from playwright.sync_api import Browser, Page, Request, expect

from tests.browser import add_person, beyond, open_menu, sessions, signed_in
from tests.patience import eventually
from tests.servers.customer import Customer

API = "/v1/chat/completions"


def choose(page: Page, model: str) -> None:
    page.get_by_label("Model").select_option(f"sim/test/{model}")


def say(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_role("button", name="Send").click()


def fact(page: Page, label: str) -> str:
    """Returns a fact of the last answer."""
    pair = page.locator(".result").last.locator("dl > div").filter(has=page.get_by_text(label, exact=True))
    return pair.locator("dd").inner_text()


def amount(page: Page, label: str) -> Decimal:
    return Decimal(fact(page, label).split()[0].replace(",", ""))


def booked(customer: Customer) -> tuple[Decimal, Decimal]:
    """Returns the cost of the newest record, and the balance in the ledger."""
    [[cost, balance]] = customer.gateway.query(
        "SELECT g.cost, w.balance FROM billing_generation g JOIN billing_wallet w ON w.account_id = g.account_id "
        "WHERE g.account_id = %s ORDER BY g.created_at DESC LIMIT 1",
        [customer.id.replace("-", "")],
    )
    return Decimal(cost).scaleb(-10), Decimal(balance).scaleb(-10)


def test_a_conversation_is_streamed_billed_and_shown_with_its_code(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, role="member") as page:
        sent: list[Request] = []
        page.on("request", lambda request: sent.append(request) if API in request.url else None)
        page.goto("/playground?model=sim/test/echo/FRPAR")
        expect(page.get_by_label("Model")).to_have_value("sim/test/echo/FRPAR")
        page.get_by_label("System prompt").fill("Be <b>brief</b>.")
        page.get_by_label("Max output tokens").fill("100")
        page.get_by_label("Message", exact=True).fill("It's <img src=x> one")
        code = page.get_by_label("Example in curl").inner_text()
        assert """{"role": "user", "content": "It'\\''s <img src=x> one"}""" in code
        assert '"max_tokens": 100' in code
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("status").filter(has_text="Answer complete.")).to_be_visible()
        turns = page.get_by_role("log").get_by_role("article")
        expect(turns.nth(1)).to_contain_text("It's <img src=x> one")  # as text
        expect(page.get_by_label("Message", exact=True)).to_be_focused()
        assert fact(page, "Route") == "sim/test/echo/FRPAR"
        assert "Wh" in fact(page, "Energy")
        assert "g CO₂e" in fact(page, "Carbon")
        assert (amount(page, "Cost"), amount(page, "Balance after")) == booked(customer)

        choose(page, "chunks")
        say(page, "And two")
        expect(page.locator(".result")).to_have_count(2)
        assert (amount(page, "Cost"), amount(page, "Balance after")) == booked(customer)
        roles = [[one["role"] for one in (request.post_data_json or {})["messages"]] for request in sent]
        assert roles == [["system", "user"], ["system", "user", "assistant", "user"]]
        tokens = {request.headers["authorization"] for request in sent}
        [token] = tokens  # one key for the page
        assert token.removeprefix("Bearer ") not in page.content()
        assert "sk-gw-…" in page.get_by_label("Example in curl").inner_text()
        page.get_by_role("radio", name="Python").check()
        code = page.get_by_label("Example in Python").inner_text()
        ast.parse(code)
        assert '{"role": "user", "content": "And two"},\n    ],\n    max_tokens=100,\n    stream=True,\n)' in code

        page.get_by_label("Stream the answer").uncheck()
        say(page, "Whole")
        expect(page.locator(".result")).to_have_count(3)
        assert (amount(page, "Cost"), amount(page, "Balance after")) == booked(customer)
        for width in (320, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert beyond(page, width) == []
        with page.context.expect_page() as opened:
            page.get_by_role("link", name="Request details").last.click()
        expect(opened.value.get_by_role("region", name=re.compile("UTC"))).to_contain_text(
            "completed", ignore_case=True
        )

        def status() -> int:
            headers = {"Authorization": token}
            return requests.get(f"{customer.gateway.origin}/v1/models", headers=headers, timeout=30).status_code

        assert status() == 200
        open_menu(page)
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
        assert status() == 401


@pytest.mark.campaign
def test_stopping_is_charged_for_what_came_and_errors_say_what_to_do(chromium: Browser, customer: Customer) -> None:
    email = add_person(customer.gateway, f"stops@{customer.name}.example", account=customer.name, password=None)
    context = chromium.new_context(base_url=customer.gateway.origin)
    context.add_cookies([sessions(customer.gateway, [email])[email]])
    page = context.new_page()
    page.goto("/playground")
    choose(page, "endless")
    say(page, "Go on")
    expect(page.get_by_role("status").filter(has_text="Receiving")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status").filter(has_text="Stopped.")).to_be_visible()
    expect(page.locator(".result")).to_contain_text("The prompt and what was delivered are charged.")
    assert (amount(page, "Cost"), amount(page, "Balance after")) == booked(customer)
    assert amount(page, "Cost") > 0

    choose(page, "error-frame")
    say(page, "Break off")
    expect(page.get_by_role("alert")).to_contain_text("provider_error")
    expect(page.locator(".result")).to_have_count(2)
    assert amount(page, "Cost") == booked(customer)[0]

    choose(page, "status-500")
    say(page, "Fail")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("503 provider_error")
    expect(alert).to_contain_text("Retry with exponential backoff")
    expect(page.get_by_label("Message", exact=True)).to_have_value("Fail")
    expect(page.locator(".result")).to_have_count(2)

    failures = "SELECT code FROM billing_requestfailure WHERE account_id = %s"
    parameters = [customer.id.replace("-", "")]
    # There are both provoked failures, in one row or two, and none by the page itself.
    assert eventually(lambda: set(customer.gateway.query(failures, parameters)) == {("provider_error",)})

    # Another page of the same person takes the key over, so this one makes a new one.
    second = context.new_page()
    for one in (second, page):
        if one is second:
            one.goto("/playground")
        choose(one, "echo")
        say(one, "Hello")
        expect(one.get_by_role("status").filter(has_text="Answer complete.")).to_be_visible()

    open_menu(second)
    second.get_by_role("button", name="Sign out").click()
    expect(second.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
    say(page, "Hello again")
    expect(alert).to_contain_text("You are signed out.")
    context.close()
