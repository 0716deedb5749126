"""The Playground shows tool calls, keeps the conversation in its tab, takes images, and compares two models."""

import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, expect

from tests.browser import add_person, open_menu, sessions, signed_in
from tests.catalogue import model, provider, region
from tests.conftest import OpenAccount
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

API = "/v1/chat/completions"
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SEES, BLIND = "playground-sees/test/sees", "playground-sees/test/blind"
# Gives files to the message, as the clipboard or a drag does.
HAND_OVER = """([kind, names, type, size]) => {
  const data = new DataTransfer();
  for (const name of names) data.items.add(new File([new Uint8Array(size)], name, { type }));
  const made = kind === "paste"
    ? new ClipboardEvent("paste", { clipboardData: data, cancelable: true })
    : new DragEvent("drop", { dataTransfer: data, cancelable: true });
  document.getElementById("playground-message").dispatchEvent(made);
}"""


@pytest.fixture(scope="module", autouse=True)
def _models(gateway: GatewayServer, simulator: Simulator) -> None:
    """Offers a model that takes images, and one that does not, at a provider that refuses `seed`."""
    sees = {"streaming": True, "function_calling": True, "image_input": True}
    gateway.offer(
        providers=[provider("playground-sees", simulator.url, refused_parameters=["seed"])],
        models=[
            model("sees", provider="playground-sees", capabilities=sees, regions=[region("FRPAR", default=True)]),
            model(
                "blind",
                provider="playground-sees",
                capabilities=sees | {"image_input": False},
                regions=[region("FRPAR", default=True)],
            ),
        ],
    )


@pytest.fixture
def page(chromium: Browser, customer: Customer) -> Iterator[Page]:
    with signed_in(chromium, customer, role="member", viewport={"width": 1280, "height": 800}) as page:
        page.goto("/playground?model=sim/test/echo")
        yield page


@pytest.fixture
def sent(page: Page) -> list[dict[str, Any]]:
    """Collects the bodies of the requests to the API."""
    bodies: list[dict[str, Any]] = []

    def collect(request: Request) -> None:
        if API in request.url:
            bodies.append(request.post_data_json or {})

    page.on("request", collect)
    return bodies


def signed_in_to_fail(chromium: Browser, customer: Customer) -> Page:
    """Opens the page for a new member, without a check of the console, where a browser writes each failed request."""
    email = add_person(customer.gateway, f"fails@{customer.name}.example", account=customer.name, password=None)
    context = chromium.new_context(base_url=customer.gateway.origin)
    context.add_cookies([sessions(customer.gateway, [email])[email]])
    page = context.new_page()
    page.goto("/playground?model=sim/test/echo")
    return page


def choose(page: Page, model: str) -> None:
    page.get_by_label("Model", exact=True).select_option(model)


def say(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_role("button", name="Send").click()


def answered(page: Page, times: int) -> Locator:
    """Waits for that many answers, and returns the last."""
    expect(page.locator(".result:not([hidden])")).to_have_count(times)
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    return page.locator(".answer").last


def texts(page: Page) -> list[str]:
    return page.locator(".asked .said").all_inner_texts()


def test_an_answer_is_markdown_and_its_source_is_a_press_away(page: Page) -> None:
    say(page, "# Head\n\n- **one**\n\n<script>alert(1)</script>")
    answer = answered(page, 1)
    expect(answer.get_by_role("heading", name="Head")).to_be_visible()
    expect(answer.locator("li strong")).to_have_text("one")
    expect(answer.locator("script")).to_have_count(0)
    answer.get_by_role("button", name="Raw").click()
    expect(answer.get_by_label("Source of the answer")).to_have_text("# Head\n\n- **one**\n\n<script>alert(1)</script>")
    expect(answer.locator(".markdown")).to_be_hidden()


def test_code_is_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    say(page, "```py\nx = 1\n```")
    answered(page, 1).get_by_role("button", name="Copy").click()
    expect(page.get_by_role("status").filter(has_text="Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "x = 1\n"


@pytest.mark.parametrize("streams", [True, False])
def test_tool_calls_are_shown_by_name_with_their_arguments(page: Page, streams: bool) -> None:
    choose(page, "sim/test/tools")
    page.get_by_label("Stream the answer").set_checked(streams)
    say(page, 'Say "it"')
    call = answered(page, 1).locator(".call")
    expect(call).to_contain_text("Tool call lookup")
    expect(call.get_by_label("Arguments of lookup")).to_have_text('{\n  "query": "Say \\"it\\""\n}')


def test_reasoning_is_folded(page: Page) -> None:
    choose(page, "sim/test/reasoning")
    say(page, "Think")
    answer = answered(page, 1)
    expect(answer.get_by_text("First I read the question.")).to_be_hidden()
    answer.locator("summary", has_text="Reasoning").click()
    expect(answer.get_by_text("First I read the question.")).to_be_visible()


def test_the_conversation_and_settings_survive_a_reload_and_back(page: Page, sent: list[dict[str, Any]]) -> None:
    page.get_by_label("System prompt").fill("Be brief.")
    say(page, "**One**")
    answered(page, 1)
    page.get_by_label("Message", exact=True).fill("A draft")
    page.reload()
    expect(answered(page, 1).locator("strong")).to_have_text("One")
    expect(page.get_by_label("Message", exact=True)).to_have_value("A draft")
    page.goto("/keys")
    page.go_back()
    answered(page, 1)
    say(page, "Two")
    answered(page, 2)
    assert [one["content"] for one in sent[-1]["messages"]] == ["Be brief.", "**One**", "**One**", "Two"]
    page.get_by_role("button", name="Clear").click()
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    assert texts(page) == []


def test_it_is_never_shown_to_another_user_and_ends_with_a_sign_out(page: Page, customer: Customer) -> None:
    say(page, "A secret")
    answered(page, 1)
    own = page.context.cookies()
    other = add_person(
        customer.gateway, f"other@{customer.name}.example", account=customer.name, role="member", password=None
    )
    page.context.add_cookies([sessions(customer.gateway, [other])[other]])
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    assert texts(page) == []
    assert "secret" not in page.evaluate("JSON.stringify({...sessionStorage, ...localStorage})")
    page.context.add_cookies(own)  # type: ignore[arg-type]  # cookies as Playwright gave them
    page.reload()
    assert texts(page) == []

    say(page, "Another secret")
    answered(page, 1)
    open_menu(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_images_too_large_to_keep_are_lost_and_the_text_is_kept(page: Page) -> None:
    choose(page, SEES)
    page.evaluate(HAND_OVER, ["drop", ["a.png", "b.png"], "image/png", 4_000_000])
    expect(page.get_by_alt_text("Image 2")).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="a reload keeps the text only")).to_be_visible()
    say(page, "Both")
    answered(page, 1)
    page.reload()
    answered(page, 1)
    assert texts(page) == ["Both"]
    expect(page.locator(".asked")).to_contain_text("2 images not kept")


def test_images_are_chosen_pasted_and_dropped_and_sent_as_data_urls(page: Page, sent: list[dict[str, Any]]) -> None:
    choose(page, SEES)
    page.get_by_label("Images").set_input_files({"name": "dot.png", "mimeType": "image/png", "buffer": DOT})
    for kind in ("paste", "drop"):
        page.evaluate(HAND_OVER, [kind, ["more.png"], "image/png", 10])
    expect(page.locator("#playground-images img")).to_have_count(3)
    page.get_by_role("button", name="Remove image 3").click()
    say(page, "What is it?")
    answered(page, 1)
    [message] = sent[-1]["messages"]
    assert [one["type"] for one in message["content"]] == ["text", "image_url", "image_url"]
    url = message["content"][1]["image_url"]["url"]
    assert url == f"data:image/png;base64,{base64.b64encode(DOT).decode()}"
    expect(page.locator(".asked img")).to_have_count(2)
    assert "data:image/png;base64,…" in page.get_by_label("Example in curl").inner_text()

    choose(page, BLIND)
    say(page, "And now?")
    expect(answered(page, 2)).to_contain_text("The images were left out, because this model takes none.")
    assert sent[-1]["messages"][0]["content"] == "What is it?"


@pytest.mark.parametrize(
    ("names", "kind", "size", "words"),
    [
        (["a.svg"], "image/svg+xml", 10, "a.svg is not a PNG, JPEG, WebP or GIF image."),
        (["a.png"], "image/png", 5_100_000, "a.png has 5.1 MB. An image may have 5 MB."),
        (["a.png"] * 9, "image/png", 10, "A message may have 8 images."),
    ],
)
def test_an_image_beyond_a_limit_is_refused_in_words(
    page: Page, names: list[str], kind: str, size: int, words: str
) -> None:
    choose(page, SEES)
    page.evaluate(HAND_OVER, ["paste", names, kind, size])
    expect(page.get_by_role("alert")).to_contain_text(words)


def test_a_model_is_offered_only_what_it_takes(page: Page, sent: list[dict[str, Any]]) -> None:
    page.get_by_text("More settings").click()
    page.get_by_label("Top p").fill("0.5")
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Stop sequences").fill("END\nFIN")
    page.get_by_label("Answer in JSON").check()
    say(page, "Hello END")
    answered(page, 1)
    own = {"top_p": 0.5, "seed": 7, "stop": ["END", "FIN"], "response_format": {"type": "json_object"}}
    assert own.items() <= sent[-1].items()
    expect(page.get_by_role("button", name="Add images")).to_be_hidden()
    page.evaluate(HAND_OVER, ["paste", ["a.png"], "image/png", 10])
    expect(page.get_by_role("alert")).to_contain_text("sim/test/echo takes no images.")

    choose(page, SEES)
    expect(page.get_by_role("button", name="Add images")).to_be_visible()
    expect(page.get_by_label("Seed")).to_be_disabled()
    say(page, "Hello")
    answered(page, 2)
    assert "seed" not in sent[-1]


def test_an_answer_is_retried_and_a_turn_edited_or_deleted(page: Page, sent: list[dict[str, Any]]) -> None:
    for number, text in enumerate(("One", "Two", "Three"), start=1):
        say(page, text)
        answered(page, number)
    page.get_by_role("button", name="Retry").locator("visible=true").click()
    expect(page.get_by_role("button", name="Retry").locator("visible=true")).to_have_count(1)
    answered(page, 3)
    assert sent[-1] == sent[-2]

    page.get_by_role("button", name="Delete").first.click()
    assert texts(page) == ["Two", "Three"]
    page.get_by_role("button", name="Edit").first.click()
    expect(page.get_by_label("Message", exact=True)).to_have_value("Two")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    page.get_by_role("button", name="Edit").first.click()
    say(page, "Two and a half")
    answered(page, 1)
    assert texts(page) == ["Two and a half"]
    assert [one["content"] for one in sent[-1]["messages"]] == ["Two and a half"]


def test_what_an_edit_replaces_returns_if_no_answer_begins(chromium: Browser, customer: Customer) -> None:
    page = signed_in_to_fail(chromium, customer)
    say(page, "One")
    answered(page, 1)
    choose(page, "sim/test/status-500")
    page.get_by_role("button", name="Edit").click()
    say(page, "Another")
    expect(page.get_by_role("alert")).to_contain_text("503 provider_error")
    answered(page, 1)
    assert texts(page) == ["One"]
    expect(page.get_by_label("Message", exact=True)).to_have_value("Another")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("alert")).to_contain_text("503 provider_error")
    expect(answered(page, 1).locator(".markdown")).to_have_text("One")


def test_two_models_answer_one_message_and_each_is_stopped_by_itself(page: Page, sent: list[dict[str, Any]]) -> None:
    page.get_by_role("button", name="Add a model to compare").click()
    page.get_by_label("Compared with").select_option("sim/test/endless")
    keys: list[Request] = []
    page.on("request", lambda request: keys.append(request) if request.url.endswith("/playground/key") else None)
    say(page, "Hello")
    first, second = page.locator(".answer").first, page.locator(".answer").last
    expect(first.locator(".result")).to_contain_text("First token")
    expect(first.get_by_role("button", name="Stop")).to_be_hidden()
    expect(second.locator(".markdown")).to_contain_text("Hello")
    second.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status").filter(has_text="Stopped.")).to_be_visible()
    expect(second.locator(".result")).to_contain_text("The prompt and what was delivered are charged.")
    for label in ("First token", "Time", "Cost", "Energy"):
        expect(first.locator("dt", has_text=label)).to_be_visible()
    assert [one["model"] for one in sent] == ["sim/test/echo", "sim/test/endless"]
    assert len(keys) == 1

    boxes = [one.bounding_box() for one in (first, second)]
    assert boxes[0]
    assert boxes[1]
    assert boxes[0]["y"] == boxes[1]["y"]
    page.set_viewport_size({"width": 390, "height": 800})
    boxes = [one.bounding_box() for one in (first, second)]
    assert boxes[0]
    assert boxes[1]
    assert boxes[0]["x"] == boxes[1]["x"]

    page.reload()
    expect(page.get_by_label("Compared with")).to_have_value("sim/test/endless")
    answered(page, 2)
    page.get_by_role("button", name="Remove the second model").click()
    say(page, "And?")
    answered(page, 3)
    assert [one["content"] for one in sent[-1]["messages"]] == ["Hello", "Hello", "And?"]


def test_the_conversation_follows_its_end_until_the_person_scrolls_up(page: Page) -> None:
    turns = page.get_by_role("log")
    at_end = "one => one.scrollHeight - one.scrollTop - one.clientHeight < 2"
    choose(page, "sim/test/many-chunks")
    say(page, "word")
    answered(page, 1)
    assert turns.evaluate(at_end)
    choose(page, "sim/test/endless")
    say(page, "word")
    answer = page.locator(".answer").nth(1).locator(".markdown")
    grows = "([one, length]) => one.textContent.length > length + 500"
    expect(answer).to_contain_text("wordword")
    turns.evaluate("one => { one.scrollTop = 0; }")
    page.wait_for_function(grows, arg=[answer.element_handle(), len(answer.inner_text())])
    assert turns.evaluate("one => one.scrollTop") == 0
    turns.evaluate("one => { one.scrollTop = one.scrollHeight; }")
    page.wait_for_function(grows, arg=[answer.element_handle(), len(answer.inner_text())])
    page.get_by_role("button", name="Stop").click()
    answered(page, 2)
    assert turns.evaluate(at_end)
    message, settings = page.get_by_label("Message", exact=True), page.get_by_label("System prompt")
    expect(message).to_be_in_viewport()
    expect(settings).to_be_in_viewport()


def test_a_refusal_for_lack_of_credit_leads_to_the_billing_page(
    chromium: Browser, gateway: GatewayServer, open_account: OpenAccount
) -> None:
    page = signed_in_to_fail(chromium, open_account(gateway, credit=None))
    say(page, "Hello")
    link = page.get_by_role("alert").get_by_role("link", name="Billing")
    expect(link).to_have_attribute("href", re.compile(r"^/credit\?account="))


def test_the_page_sends_less_than_30_kilobytes_of_script_and_a_phone_has_no_hint(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    network = page.context.new_cdp_session(page)
    addresses: dict[str, str] = {}
    sizes: dict[str, float] = {}

    def received(event: dict[str, Any]) -> None:
        if event["type"] == "Script":
            addresses[event["requestId"]] = event["response"]["url"]

    def finished(event: dict[str, Any]) -> None:
        if address := addresses.get(event["requestId"]):
            sizes[address] = max(sizes.get(address, 0), event["encodedDataLength"])

    network.on("Network.responseReceived", received)
    network.on("Network.loadingFinished", finished)
    network.send("Network.enable")
    network.send("Network.setCacheDisabled", {"cacheDisabled": True})
    page.reload(wait_until="networkidle")
    assert len(sizes) == 9
    assert sum(sizes.values()) < 30_000
    expect(page.get_by_text("Ctrl+Enter sends")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.get_by_text("Ctrl+Enter sends")).to_be_hidden()
