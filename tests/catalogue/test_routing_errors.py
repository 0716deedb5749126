"""Over HTTP a model id leads to the route that it pins, or to the refusal of docs/api.md#error-codes."""

import pytest

from tests import bills
from tests.chat import answer, ask, question
from tests.conftest import OpenAccount
from tests.envelope import message, refusal
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

INVALID = (400, "invalid_request_error", "invalid_request_error", "model")
NOT_FOUND = (404, "not_found", "not_found", "model")
DISABLED = (404, "internal_server_error", "model_not_found", "model")
UNSERVED = (503, "provider_unavailable", "provider_unavailable", "model")
RESTING = (503, "provider_unavailable", "model_unavailable", "model")
NOT_CONFIGURED = (503, "provider_unavailable", "provider_not_configured", None)
UNPRICED = (503, "provider_error", "provider_error", None)
BAD_ALIAS = (400, "invalid_request_error", "invalid_alias_name", "model")
NO_ALIAS = (404, "not_found", "alias_not_found", "model")

# Each row is an id, the answer's error, and what the message must contain.
REFUSED = [
    ("echo", INVALID, ["received 1 segment. Did you mean `sim/test/echo`", "See `GET /v1/models`."]),
    ("", INVALID, ["received 1 segment"]),
    ("test/echo", INVALID, ["received 2 segments."]),
    ("sim/test/echo/FRPAR/more", INVALID, ["received 5 segments."]),
    ("sim//echo", INVALID, ["received 3 segments"]),
    ("sim/test/echo/", INVALID, ["received 4 segments"]),
    ("/sim/test/echo", INVALID, ["received 4 segments"]),
    ("auto/test/echo/FRPAR", INVALID, ["4 segments"]),
    ("nobody/test/echo", NOT_FOUND, ["nobody", "test/echo", "Did you mean `sim/test/echo`", "`GET /v1/models`"]),
    ("auto/test/ehco", NOT_FOUND, ["auto/test/ehco", "Did you mean `auto/test/echo`"]),
    ("sim/test/nowhere", NOT_FOUND, ["sim", "test/nowhere"]),
    ("simkey/test/two-prices", NOT_FOUND, ["simkey", "test/two-prices"]),
    ("SIM/test/echo", NOT_FOUND, ["SIM"]),
    ("sim/test/echo/global", NOT_FOUND, ["FRPAR", "DEFRA", "global"]),
    ("sim/test/echo/USQAS", UNSERVED, ["USQAS", "FRPAR", "DEFRA"]),
    ("sim/test/half-closed/DEFRA", UNSERVED, ["DEFRA", "FRPAR"]),
    ("sim/test/global-only/FRPAR", UNSERVED, ["FRPAR", "global"]),
    ("sim/test/resting", RESTING, ["Being moved to new hardware."]),
    ("sim/test/resting/FRPAR", RESTING, ["Being moved to new hardware."]),
    ("sim/test/gone", DISABLED, ["sim/test/gone"]),
    ("sim/test/gone/FRPAR", DISABLED, ["sim/test/gone"]),
    ("nokey/test/echo", NOT_CONFIGURED, ["nokey"]),
    ("sim/test/unpriced", UNPRICED, ["sim", "sim/test/unpriced", "price"]),
    ("sim/test/embedding", INVALID, ["embedding", "chat completions"]),
    ("sim/test/unknown-modality", INVALID, ["unknown", "chat completions"]),
    ("alias/Upper", BAD_ALIAS, ["alias/Upper"]),
    ("alias/", BAD_ALIAS, ["1-64"]),
    ("alias", BAD_ALIAS, ["1-64"]),
    ("alias/-dash", BAD_ALIAS, ["1-64"]),
    ("alias/" + "a" * 65, BAD_ALIAS, ["1-64"]),
    ("alias/two/parts", BAD_ALIAS, ["1-64"]),
    ("alias/nothing", NO_ALIAS, ["alias/nothing"]),
]

streamed_or_whole = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@streamed_or_whole
@pytest.mark.parametrize(("model", "expected", "words"), REFUSED, ids=[model or "empty" for model, *_ in REFUSED])
def test_an_id_that_leads_nowhere_is_refused(
    account: Customer,
    simulator: Simulator,
    model: str,
    expected: tuple[int, str, str, str | None],
    words: list[str],
    stream: bool,
) -> None:
    calls = simulator.stats()["calls"]
    reply = account.http.post("/v1/chat/completions", json=question("echo", stream=stream) | {"model": model})
    assert refusal(reply) == expected
    assert [word for word in words if word not in message(reply)] == []
    assert reply.headers["x-should-retry"] == "false"
    assert "Retry-After" not in reply.headers
    assert simulator.stats()["calls"] == calls
    assert bills.untouched(account)


def test_a_route_without_an_exchange_rate_to_the_accounts_currency_is_declined(
    gateway: GatewayServer, open_account: OpenAccount
) -> None:
    reply = ask(open_account(gateway, currency="GBP"), "echo")
    assert refusal(reply) == UNPRICED
    assert "EUR to GBP" in message(reply)
    assert reply.headers["x-should-retry"] == "false"


def test_an_overlong_id_is_shortened_in_the_message(account: Customer) -> None:
    reply = ask(account, "echo", model="x" * 100_000)
    assert refusal(reply) == INVALID
    assert len(reply.text) < 1000


@pytest.mark.parametrize(
    ("model", "served"),
    [
        ("sim/test/echo", "sim/test/echo/FRPAR"),
        ("sim/test/echo/FRPAR", "sim/test/echo/FRPAR"),
        ("sim/test/echo/DEFRA", "sim/test/echo/DEFRA"),
        ("sim/test/echo/defra", "sim/test/echo/DEFRA"),
        ("sim/test/worldwide/GLOBAL", "sim/test/worldwide/global"),
        ("sim/test/half-closed", "sim/test/half-closed/FRPAR"),
        ("sim/test/worldwide", "sim/test/worldwide/global"),
        ("sim/test/worldwide/global", "sim/test/worldwide/global"),
        ("sim/test/worldwide/USQAS", "sim/test/worldwide/USQAS"),
        ("sim/test/global-only", "sim/test/global-only/global"),
        ("sim/test/global-only/global", "sim/test/global-only/global"),
        ("simkey/test/echo", "simkey/test/echo/DEFRA"),
        ("simus/test/echo", "simus/test/echo/USQAS"),
    ],
)
def test_an_id_pins_its_region_or_the_default_one(account: Customer, model: str, served: str) -> None:
    result = answer(account, model)
    provider, _creator, _model, region = served.split("/")
    assert result["model"] == served
    assert (result["gateway_metadata"]["provider"], result["gateway_metadata"]["region"]) == (provider, region)
    (record,) = bills.records(account)
    assert f"{record.provider}/{record.model}/{record.region}" == served


@pytest.mark.parametrize(
    ("model", "currency", "cost"),
    [
        ("sim/test/two-prices/FRPAR", "EUR", "0.0000036"),
        ("sim/test/two-prices", "EUR", "0.0000036"),
        ("sim/test/two-prices/DEFRA", "EUR", "0.0000054"),
        ("sim/test/dollars", "EUR", "0.0000032"),
        ("sim/test/dollars", "USD", "0.000004"),
        ("sim/test/echo", "USD", "0.0000045"),
    ],
)
def test_the_price_is_that_of_the_pinned_region_in_the_accounts_currency(
    gateway: GatewayServer, open_account: OpenAccount, model: str, currency: str, cost: str
) -> None:
    customer = open_account(gateway, currency=currency)
    usage = answer(customer, model)["usage"]
    assert (usage["currency"], f"{usage['cost']:.10f}".rstrip("0")) == (currency, cost)
    assert [f"{debit:f}".rstrip("0") for debit in bills.debits(customer)] == [cost]


@pytest.mark.parametrize("model", ["{}", "{}/test/echo", "sim/test/{}", "sim/test/echo/{}", "auto/test/{}", "alias/{}"])
def test_an_endless_id_is_not_said_back(account: Customer, model: str) -> None:
    reply = account.http.post("/v1/chat/completions", json=question("echo") | {"model": model.format("x" * 100_000)})
    assert reply.status_code in (400, 404, 503)
    assert len(message(reply)) < 1000
