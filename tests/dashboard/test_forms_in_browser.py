"""Forms are used by keyboard in a real browser, after changes in another tab or by another person, and with faults."""

import re

import pytest
from playwright.sync_api import Browser, Route, ViewportSize, expect

from tests.browser import PASSWORD, add_person, follow_account_menu, signed_in
from tests.servers.customer import Customer


def test_a_login_form_of_before_says_who_is_signed_in(chromium: Browser, customer: Customer) -> None:
    first, second = (
        add_person(customer.gateway, f"{name}@{customer.name}.example", account=customer.name)
        for name in ("first", "second")
    )
    context = chromium.new_context(base_url=customer.gateway.origin)
    tab, older = context.new_page(), context.new_page()
    for page in (older, tab):
        page.goto("/login")
    for page, email in ((tab, first), (older, second)):
        page.bring_to_front()
        page.get_by_label("Email address").focus()
        for text, key in ((email, "Tab"), (PASSWORD, "Enter")):
            page.keyboard.type(text)
            page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_have_text(customer.name)
    expect(tab.get_by_role("status")).to_have_count(0)
    expect(older.get_by_role("status")).to_contain_text(f"You are signed in as {first}.")


def test_a_refused_invitation_is_seen_announced_and_mended_by_keyboard(chromium: Browser, customer: Customer) -> None:
    viewport: ViewportSize = {"width": 1280, "height": 900}
    with signed_in(chromium, customer, viewport=viewport) as page:
        member = f"owner@{customer.name}.example"
        follow_account_menu(page, "Members")
        page.get_by_label("Email address").focus()
        page.keyboard.type(member)
        page.keyboard.press("Enter")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("is already a member")
        expect(alert).to_be_focused()
        expect(alert).to_be_in_viewport()
        assert page.title().startswith("Error: Members")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Email address")).to_be_focused()
        page.keyboard.press("Control+a")
        page.keyboard.type(f"guest@{customer.name}.example")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text("An invitation has been sent")


def test_an_older_page_overwrites_no_limit_that_another_has_set(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer) as older:
        older.get_by_role("link", name="API keys").click()
        older.locator("a[href^='/keys/']:not([href$='/delete'])").first.click()
        page = older.context.new_page()
        address = older.url
        page.goto(address)
        for tab, field, limit in ((page, "Requests per minute", "60"), (older, "Tokens per minute", "1000")):
            tab.bring_to_front()
            tab.get_by_label(field).focus()
            tab.keyboard.type(limit)
            tab.keyboard.press("Enter")
            expect(tab.get_by_role("status")).to_contain_text("has been saved")
        older.goto(address)
        expect(older.get_by_label("Requests per minute")).to_have_value("60")
        expect(older.get_by_label("Tokens per minute")).to_have_value("1000")


@pytest.mark.campaign
def test_an_older_page_overwrites_no_threshold_that_another_has_set(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer) as older:
        older.goto("/notifications")
        page = older.context.new_page()
        page.goto("/notifications")
        page.get_by_label("Low-balance threshold").focus()
        page.keyboard.type("25")
        page.get_by_role("button", name="Save").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text("Notifications saved.")
        older.bring_to_front()
        older.get_by_label("Email me").focus()
        older.keyboard.press("Space")
        older.get_by_role("button", name="Save").focus()
        older.keyboard.press("Enter")
        expect(older.get_by_role("status")).to_contain_text("Notifications saved.")
        expect(older.get_by_label("Email me")).not_to_be_checked()
        expect(older.get_by_label("Low-balance threshold")).to_have_value("25.00")


@pytest.mark.campaign
@pytest.mark.parametrize("action", ["Change role of", "Remove"])
def test_an_older_page_of_somebody_who_was_removed_says_so(chromium: Browser, customer: Customer, action: str) -> None:
    guest = add_person(customer.gateway, f"guest@{customer.name}.example", account=customer.name, password=None)
    with signed_in(chromium, customer) as older:
        follow_account_menu(older, "Members")
        older.get_by_role("link", name=f"{action} {guest}").click()
        page = older.context.new_page()
        page.goto("/members")
        page.get_by_role("link", name=f"Remove {guest}").click()
        page.get_by_role("button", name="Remove member").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text("is no longer in")
        older.bring_to_front()
        older.get_by_role("button", name=re.compile("Save role|Remove member")).focus()
        older.keyboard.press("Enter")
        expect(older.get_by_role("status")).to_contain_text("has already been removed")
        expect(older.get_by_role("heading", level=1)).to_have_text("Members")


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("address", "field", "chosen"),
    [
        ("/usage/records", "Outcome", "failures"),
        ("/usage/records", "From", "2026-10-01"),
        ("/usage", "To", "2026-10-01"),
        ("/models", "Modality", "embedding"),
    ],
)
def test_back_from_a_choice_leads_to_a_form_that_says_what_its_page_shows(
    chromium: Browser, customer: Customer, address: str, field: str, chosen: str
) -> None:
    with signed_in(chromium, customer) as page:
        page.goto(address)
        control = page.get_by_label(field, exact=True)
        before = control.input_value()
        (control.select_option if control.evaluate("each => each.localName") == "select" else control.fill)(chosen)
        with page.expect_navigation():
            control.locator("xpath=ancestor::form").get_by_role("button", name="Apply").click()
        page.go_back()
        expect(control).to_have_value(before)
        page.go_forward()
        expect(control).to_have_value(chosen)


def test_a_form_whose_sending_was_stopped_can_be_sent_again(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer) as page:
        page.goto("/keys")
        browser = page.context.new_cdp_session(page)
        held: list[Route] = []

        def hold_the_first(route: Route) -> None:
            if route.request.method == "POST" and not held:
                held.append(route)
            else:
                route.continue_()

        page.route("**/keys", hold_the_first)
        page.get_by_label("Name").fill("stopped")
        create = page.get_by_role("button", name="Create")
        with page.expect_request(lambda request: request.method == "POST"):
            create.click(no_wait_after=True)
        browser.send("Page.stopLoading")
        create.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Your new key: stopped")
