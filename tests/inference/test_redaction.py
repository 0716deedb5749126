"""A quoted upstream keeps ordinary words, and none of its secrets and addresses."""

import base64
import random
import string
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.redaction import QUOTE_LENGTH, quoted, without_secrets
from tests.inference.dialects.routes import route, upstream

pytestmark = pytest.mark.sqlite_is_enough

ALNUM = string.ascii_letters + string.digits
ORDINARY = [
    "Unsupported key response_format",
    "Unsupported key: responseFormat",
    'Unknown key "max_completion_tokens" in request body.',
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "Invalid token at position 12; token-based limits apply: max_tokens=4096.",
    "Bearer authentication is required. The api key is not allowed to use this model.",
    "api_key: Field required. authorization: Field required. password: must not be empty.",
    "max_tokens: 100000 > 8192, which is the maximum allowed for claude-3-5-sonnet-20241022",
    "The model `gpt-4o-mini-2024-07-18` does not support image_url.",
    "accounts/fireworks/models/llama-v3p1-405b-instruct is not ready, meta-llama/Llama-3.3-70B-Instruct is",
    "Qwen2VLForConditionalGeneration and DeepSeekV3ForCausalLM take no ChatCompletionRequestUserMessageContentPart",
    "messages.0.content.1.image.source.base64.data: invalid base64 data",
    "`tool_use` ids were found without `tool_result` blocks: toolu_01A09q90qw90lq917835lq9",
    "These tool_call_ids had no response: call_abcDEF1234567890abcdefGH",
    "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$' at line 3:10.",
    "Rate limit reached in organization org-sim on requests per min. Please try again in 7s.",
]
# The text around a key, and the key's own form.
PLACES = [
    "{}",
    "The key {} is bad.",
    '{{"api_key": "{}"}}',
    "'{}'",
    "Bearer {}",
    "api.example/v1?key={}&alt=1",
    "\\n{}",
]
FORMS: Mapping[str, Callable[[random.Random], str]] = {
    "sk": lambda rng: "sk-" + drawn(rng, ALNUM, 20),
    "sk-proj": lambda rng: "sk-proj-" + drawn(rng, ALNUM + "_-", 60),
    "sk-ant": lambda rng: "sk-ant-api03-" + drawn(rng, ALNUM + "_-", 93) + "AA",
    "groq": lambda rng: "gsk_" + drawn(rng, ALNUM, 52),
    "google": lambda rng: "AIza" + drawn(rng, ALNUM + "_-", 35),
    "aws": lambda rng: "AKIA" + drawn(rng, string.ascii_uppercase + "234567", 16),
    "hf": lambda rng: "hf_" + drawn(rng, string.ascii_letters, 34),
    "jwt": lambda rng: f"eyJhbGciOiJIUzI1NiJ9.eyJ{drawn(rng, ALNUM, 30)}.{drawn(rng, ALNUM + '_-', 43)}",
    "hex": lambda rng: rng.randbytes(16).hex(),
    "base64": lambda rng: base64.b64encode(rng.randbytes(40)).decode(),
    "base64url": lambda rng: base64.urlsafe_b64encode(rng.randbytes(40)).decode().rstrip("="),
}


def drawn(rng: random.Random, alphabet: str, length: int) -> str:
    return "".join(rng.choices(alphabet, k=length))


@pytest.mark.parametrize("sentence", ORDINARY)
def test_ordinary_words_survive(sentence: str) -> None:
    assert without_secrets(sentence) == sentence


@given(st.lists(st.sampled_from(" ".join(ORDINARY[:6]).split()), min_size=1).map(" ".join))
def test_ordinary_words_survive_in_any_order(sentence: str) -> None:
    assert without_secrets(sentence) == sentence


@pytest.mark.parametrize("form", FORMS)
@given(rng=st.randoms(use_true_random=False), place=st.sampled_from(PLACES))
def test_no_key_survives(form: str, rng: random.Random, place: str) -> None:
    key = FORMS[form](rng)
    left = without_secrets(place.format(key))
    assert not [piece for at in range(len(key) - 8) if (piece := key[at : at + 9]) in left]


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        ("api_key=hunter", "hunter"),
        ("?token=abc&n=1", "abc"),
        ('{"api_key": "hunter", "n": 1}', "hunter"),
        ('{\\"client_secret\\": \\"hunter\\"}', "hunter"),
        ("x-api-key: hunter22", "hunter22"),
        ("password=hunter", "hunter"),
        ("Authorization: Bearer abcdefghijklmnop", "abcdefghijklmnop"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("Incorrect API key provided: sk-sim...abcd.", "abcd"),
        ("Incorrect API key provided: qwer****wxyz.", "wxyz"),
        ("Error%3Dsk-abcdefgh", "abcdefgh"),
        ("id 123e4567-e89b-42d3-a456-556642440000", "556642440000"),
    ],
)
def test_what_stands_where_a_secret_is_named_does_not_survive(said: str, secret: str) -> None:
    assert secret not in without_secrets(said)


@pytest.mark.parametrize(
    "address",
    [
        "http://10.2.3.4:8080/v1",
        "postgres://user:word@db/models",
        "192.168.7.8:80",
        "[fe80::1]:443",
        "localhost:8000",
        "foo.internal",
        "vllm-0.models.svc.cluster.local:8000",
        "api.upstream.example:8443",
    ],
)
def test_no_address_survives(address: str) -> None:
    assert without_secrets(f"Connecting to {address} failed") == "Connecting to […] failed"


def test_the_routes_own_secrets_do_not_survive_in_any_form() -> None:
    plain = "plain?>words~of~a~credential"
    at = route(upstream(credential=plain), base_url="http://vllm.example:8000/v1")
    encoded = [encode(plain.encode()).decode() for encode in (base64.b64encode, base64.urlsafe_b64encode)]
    for secret in (plain, *encoded, *(each.rstrip("=") for each in encoded)):
        assert quoted(f"refused {secret} at vllm.example today", at) == "refused […] at […] today"


def test_a_quote_is_one_line_of_bounded_length() -> None:
    assert quoted("first line\n\n  second\tline", route()) == "first line second line"
    assert quoted("word " * 5000, route()) == ("word " * 100)[:QUOTE_LENGTH] + "…"
    assert quoted("x" * 5000, route()) == ""
