"""A quoted upstream message keeps ordinary words, but no secret and no address."""

import base64
import random
import re
import string
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.redaction import QUOTE_LENGTH, quoted, without_secrets

BASE_URL = "https://api.provider.example/v1"
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
# These are the texts around a key, and the key's own form.
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


@given(st.lists(st.sampled_from(" ".join(ORDINARY[:5]).split()), min_size=1).map(" ".join))
def test_ordinary_words_survive_in_any_order(sentence: str) -> None:
    assert without_secrets(sentence) == sentence


@pytest.mark.parametrize("form", FORMS)
@given(rng=st.randoms(use_true_random=False), place=st.sampled_from(PLACES))
def test_no_key_survives(form: str, rng: random.Random, place: str) -> None:
    key = FORMS[form](rng)
    left = without_secrets(place.format(key))
    assert not [piece for at in range(len(key) - 8) if (piece := key[at : at + 9]) in left]


@pytest.mark.parametrize(
    ("text", "secret"),
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
def test_a_value_next_to_the_name_of_a_secret_does_not_survive(text: str, secret: str) -> None:
    assert secret not in without_secrets(text)


@pytest.mark.parametrize(
    "address",
    [
        "http://10.2.3.4:8080/v1",
        "postgres://user:word@db/models",
        "192.168.7.8:80",
        "[fe80::1]:443",
        "localhost:8000",
        "foo.internal",
        "ip-10-2-3-4.eu-central-1.compute.internal",
        "ip-10-2-3-4",
        "vllm-0.models.svc.cluster.local:8000",
        "vllm-7f9c8d6b54-x2x4z",
        "vllm-decode-68d7c5b9f4-tq8wz",
        "gpu3:8000",
        "vllm:80",
        "router.vpc",
        "fe80::1%eth0",
        "2001:db8::8a2e:370:7334",
        "2001:db8:0:0:0:8a2e:370:7334",
        "api.upstream.example:8443",
    ],
)
def test_no_address_survives(address: str) -> None:
    assert without_secrets(f"Connecting to {address} failed") == "Connecting to […] failed"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("HTTPConnectionPool(host='vllm', port=8000)", "HTTPConnectionPool(host=[…], port=8000)"),
        ('{"host": "vllm", "n": 1}', '{"host": […], "n": 1}'),
        ("dial tcp: lookup vllm on 10.0.0.2:53: no such host", "dial tcp: lookup […] on […]: no such host"),
    ],
)
def test_no_host_survives_in_the_places_of_hosts(text: str, left: str) -> None:
    assert without_secrets(text) == left


@pytest.mark.parametrize("base_url", ["http://api.acme.example/v1", "http://api.acme.example:8000/v1"])
@pytest.mark.parametrize(
    "host", ["api.acme.example", "API.Acme.example", "gpu-17.fra.acme.example", "s3.acme.example:1"]
)
def test_the_routes_host_and_its_neighbours_do_not_survive(base_url: str, host: str) -> None:
    assert quoted(f"refused by {host} today", [], base_url) == "refused by […] today"


def test_hosts_of_one_label_survive_if_they_are_ordinary_words() -> None:
    assert quoted("refused by gpu-box today", [], "http://gpu-box/v1") == "refused by […] today"
    assert quoted("refused by ollama today", [], "http://ollama:80/v1") == "refused by ollama today"
    assert quoted("version 9.3.4 is old", [], "http://10.2.3.4/v1") == "version 9.3.4 is old"


def _lower(found: re.Match[str]) -> str:
    return found[0].lower()


def encodings(text: str) -> Iterator[str]:
    """Yields a text in base64, with and without its end, and as it is encoded in URLs and JSON."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(text.encode()).decode()
        for each in (encoded, encoded.rstrip("=")):
            yield from (
                each,
                quote(each, safe=""),
                quote(quote(each, safe=""), safe=""),
                re.sub("%..", _lower, quote(each, safe="")),
            )
            yield each.replace("/", "\\/")


@pytest.mark.parametrize("around", ["{}", "Bearer {}", ":{}", "{}:", "user:{}", "Basic {}\n", '{{"key": "{}"}}'])
def test_the_routes_credential_does_not_survive_in_any_form(around: str) -> None:
    credential = "plain?>words~of~a~credential"
    spelled = [credential, quote(credential, safe=""), quote(quote(credential, safe="~"))]
    for secret in [*spelled, *encodings(around.format(credential))]:
        assert quoted(f"refused {secret} today", [credential], BASE_URL) == "refused […] today"


@given(
    credential=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8),
    before=st.text(max_size=20),
    after=st.text(max_size=20),
)
def test_no_credential_survives_in_base64(credential: str, before: str, after: str) -> None:
    encoded = base64.b64encode(f"{before}{credential}{after}".encode()).decode()
    assert quoted(f"refused '{encoded}'", [credential], BASE_URL) == "refused '[…]'"


def test_a_short_credential_takes_no_ordinary_words_with_it() -> None:
    for sentence in ORDINARY:
        assert quoted(sentence, ["none"], BASE_URL) == sentence


def test_a_quote_is_one_line_of_bounded_length() -> None:
    assert quoted("first line\n\n  second\tline", [], BASE_URL) == "first line second line"
    assert quoted("word " * 5000, [], BASE_URL) == ("word " * 100)[:QUOTE_LENGTH] + "…"
    assert quoted("x" * 5000, [], BASE_URL) == ""


def test_a_quote_tells_a_terminal_nothing() -> None:
    assert quoted("red \x1b[31m, left \u202e, nul \0.", [], BASE_URL) == "red [31m, left , nul ."
    assert quoted("Key sk-4f9a8b\x1b7c6d5e4f3a2b1c is wrong.", [], BASE_URL) == "Key […] is wrong."
