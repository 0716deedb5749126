"""Lists every way through the data plane: an endpoint, a dialect and a kind of model, each with every behaviour.

In addition to the models of tests/catalogue.py there is each behaviour as `sim/text/…` (completes text), `sim/embed/…`
(embeds) and `simanthropic/claude/…` (chats, in Anthropic's dialect).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.catalogue import BEHAVIOURS, PRICES, catalogue_for, model, provider
from tests.chat import HELLO, Stream
from tests.servers.customer import Customer

Json = dict[str, Any]

EMBEDDING_PRICES: Json = {"currency": "EUR", "prompt_per_1m_tokens": 0.1}
# A 5-minute write costs 1.25 times the prompt's price, a 1-hour write twice the prompt's price.
ANTHROPIC_PRICES: Json = PRICES | {
    "cache_read_per_1m_tokens": 0.06,
    "cache_write_per_1m_tokens": 0.75,
    "cache_write_1h_per_1m_tokens": 1.2,
}
MORE_BEHAVIOURS = {
    "ignores-format": "ignores-format",
    "citations": "citations",
    "describe-extra": "describe+extra-fields",
    "cache-everything": "cached:20+cache-write:7:3",
    "reasoning-tools": "reasoning+tools",
    "reasoning-extra": "reasoning+extra-fields",
    "content-blocks": "reasoning+content-blocks",
    "object-content": "object-content",
    "rich": "reasoning+logprobs+extra-fields",
    "rich-refusal": "refusal+logprobs+extra-fields",
    "slow-whole": "chunks:20:0.05",
    "slow-start": "slow-first-byte:1",
    "script": "script",
    "script-google": "script+signs:google",
    "script-openrouter": "reasoning+script+signs:openrouter",
    "finish-length": "finish:max_tokens",
    "finish-refusal": "finish:refusal",
    "silent-after-role": "pause-after-role:30",
    "silent": "slow-first-byte:30",
    "status-413": "status:413",
    "agent-401": "status:401:1",
    "agent-429": "status:429:1",
    "agent-overflow": "script+context:100",
    "agent-script": "reasoning+script",
    "status-501": "status:501",
}
ALL_BEHAVIOURS = BEHAVIOURS | MORE_BEHAVIOURS

MODES: Mapping[str, Json] = {
    "streamed": {"stream": True, "max_tokens": 16},
    "aggregated": {"max_tokens": 1000},  # above GATEWAY_AGGREGATE_OVER_TOKENS
    "whole": {"max_tokens": 16},
}


@dataclass(frozen=True)
class Way:
    """Describes one way through: the path of a request, and the models that answer it."""

    name: str
    path: str
    models: str
    # This is the gateway's estimate for "hello there" if no upstream counts: by bytes, with four tokens for a message.
    estimated_prompt: int

    @property
    def is_chat(self) -> bool:
        return self.path.endswith("chat/completions")

    def request(self, slug: str, **fields: object) -> Json:
        asked: Json = {"messages": HELLO} if self.is_chat else {"prompt": "hello there"}
        return {"model": f"{self.models}/{slug}", **asked, **fields}

    def whole_text(self, answer: Json) -> str:
        """Returns the text of an answer's first choice."""
        choice = answer["choices"][0]
        return choice["message"]["content"] if self.is_chat else choice["text"]

    def streamed_text(self, expected: Stream) -> str:
        """Returns the text of a stream."""
        choices = [choice for chunk in expected.chunks for choice in chunk["choices"]]
        return expected.text if self.is_chat else "".join(choice["text"] for choice in choices)


CHAT, TEXT, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
WAYS = {
    way.name: way
    for way in (
        Way("chat-openai", CHAT, "sim/test", 7),
        Way("chat-anthropic", CHAT, "simanthropic/claude", 2),  # Anthropic counts the prompt at the start
        Way("chat-on-completion", CHAT, "sim/text", 7),
        Way("text-openai", TEXT, "sim/text", 3),
        Way("text-on-chat", TEXT, "sim/test", 3),
        Way("text-anthropic", TEXT, "simanthropic/claude", 2),
    )
}


def catalogue(simulator_url: str) -> Json:
    """Returns the catalogue of tests/catalogue.py, with every behaviour in every shape."""
    caching = {"pricing": ANTHROPIC_PRICES}
    everything = catalogue_for(
        simulator_url,
        *(model(slug, upstream_model=name) for slug, name in MORE_BEHAVIOURS.items()),
        *(shaped("text", slug, modality="completion") for slug in ALL_BEHAVIOURS),
        *(shaped("embed", slug, modality="embedding", pricing=EMBEDDING_PRICES) for slug in ALL_BEHAVIOURS),
        *(shaped("claude", slug, provider="simanthropic", **caching) for slug in ALL_BEHAVIOURS),
        shaped("claude", "uncapped", provider="simanthropic", upstream_model="describe", max_output_tokens=None),
        shaped("test", "cannot-stream", capabilities={"streaming": False}, upstream_model="chunks:1000:0"),
        shaped("test", "never-aggregated", aggregate=False, upstream_model="describe"),
        *(shaped("test", slug, provider="quiet") for slug in ("describe", "slow-whole")),
        shaped("test", "takes-no-effort", thinking="effort", upstream_model="describe"),
        shaped("test", "realtime", modality="realtime"),
        shaped(
            "test",
            "other-cap",
            provider="simkey",
            upstream_model="describe",
            max_tokens_field="max_completion_tokens",
        ),
        *(shaped("native", slug, modality="responses") for slug in ALL_BEHAVIOURS),
        shaped("test", "responses", modality="responses"),
    )
    everything["providers"].append(provider("quiet", simulator_url, stream_options=False))
    return everything


def shaped(creator: str, slug: str, **fields: Any) -> Json:
    """Builds a model of this creator, with the behaviour that its slug names."""
    return model(slug, **{"id": f"{creator}/{slug}", "upstream_model": ALL_BEHAVIOURS.get(slug, "echo"), **fields})


def post(customer: Customer, way: Way, slug: str, **fields: object) -> Any:
    """Sends a request on this way and returns the raw response."""
    return customer.http.post(way.path, json=way.request(slug, **fields))
