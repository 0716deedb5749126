"""The official client raises the errors of chat completions."""

import openai
import pytest

from tests.conftest import OpenAccount
from tests.inference.greeting import ECHO, HI
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

BAD_KEY = "sk-gw-" + "A" * 43


@pytest.mark.parametrize(
    ("slug", "kind", "status", "code", "param"),
    [
        ("sim/test", openai.BadRequestError, 400, "invalid_request_error", "model"),
        ("sim/test/nowhere", openai.NotFoundError, 404, "not_found", "model"),
        ("sim/test/gone", openai.NotFoundError, 404, "model_not_found", "model"),
        ("sim/test/resting", openai.InternalServerError, 503, "model_unavailable", "model"),
        ("sim/test/status-400", openai.BadRequestError, 400, "invalid_request_error", None),
        ("sim/test/status-500", openai.InternalServerError, 503, "provider_error", None),
        ("sim/test/status-429", openai.InternalServerError, 503, "provider_error", None),
        ("sim/test/bad-usage", openai.InternalServerError, 503, "provider_error", None),
    ],
)
def test_the_official_client_raises_what_fits_the_status(
    account: Customer, slug: str, kind: type[openai.APIStatusError], status: int, code: str, param: str | None
) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        account.openai().chat.completions.create(model=slug, messages=HI, max_tokens=16)
    assert type(raised.value) is kind
    check(raised.value, status, code, param)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_the_official_client_raises_the_upstreams_failure_before_a_stream_begins(
    account: Customer, streams: bool
) -> None:
    with pytest.raises(openai.InternalServerError) as raised:
        account.openai().chat.completions.create(model="sim/test/drop-at-once", messages=HI, stream=streams)
    check(raised.value, 503, "provider_error", None)


def test_the_official_client_raises_an_unknown_key(account: Customer) -> None:
    with pytest.raises(openai.AuthenticationError) as raised:
        account.openai(api_key=BAD_KEY).chat.completions.create(model=ECHO, messages=HI)
    check(raised.value, 401, "api_key_not_registered", None)


def test_the_official_client_raises_an_empty_conversation(account: Customer) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        account.openai().chat.completions.create(model=ECHO, messages=[])
    check(raised.value, 400, "invalid_request_error", "messages")


def test_the_official_client_raises_an_empty_balance(gateway: GatewayServer, open_account: OpenAccount) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        open_account(gateway, credit=None).openai().chat.completions.create(model=ECHO, messages=HI)
    check(raised.value, 402, "insufficient_credits", None)


def test_the_official_client_raises_an_error_in_mid_stream(account: Customer) -> None:
    chunks = account.openai().chat.completions.create(model="sim/test/error-frame", messages=HI, stream=True)
    with pytest.raises(openai.APIError) as raised:
        list(chunks)
    assert (raised.value.type, raised.value.code) == ("provider_error", "provider_error")


def test_the_official_client_does_not_retry_what_is_futile(account: Customer, simulator: Simulator) -> None:
    calls = simulator.stats("status:400")["calls"]
    with pytest.raises(openai.BadRequestError):
        account.openai(max_retries=2).chat.completions.create(model="sim/test/status-400", messages=HI)
    assert simulator.stats("status:400")["calls"] == calls + 1


def check(error: openai.APIStatusError, status: int, code: str, param: str | None) -> None:
    assert (error.status_code, error.code, error.param) == (status, code, param)
    assert error.request_id
    assert isinstance(error.body, dict)
    assert error.body["message"] in error.message
