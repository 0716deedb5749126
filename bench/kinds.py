"""The kinds of request that are counted one by one, and the models that answer them (see bench/upstream.py)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REPLY, BURST, SLOW = "bench-reply", "bench-burst", "bench-slow"
PACED, EMBEDDING = "bench-paced", "bench-embedding"
MESSAGE = "bench-message"  # a burst in Anthropic's dialect
ALIAS = "bench"
# The variables that tell the worker where its trace and its count of waits go (bench/worker.py).
TRACE_FILE, WAITS_FILE = "BENCH_TRACE", "BENCH_WAITS"

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
RESPONSES, MESSAGES_API = "/v1/responses", "/v1/messages"
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant. Answer in one paragraph."},
    {"role": "user", "content": "Why is the sky blue, and why are sunsets red? " * 4},
]
# The cap keeps the gateway from streaming to itself (GATEWAY_AGGREGATE_OVER_TOKENS).
CAPPED = {"messages": MESSAGES, "max_tokens": 64}
STREAM = {**CAPPED, "stream": True}


@dataclass(frozen=True, slots=True)
class Kind:
    """`count` of them are counted. The pass-through gets the same, or the kind that `beside` names."""

    name: str
    count: int
    beside: str = ""
    model: str = REPLY
    fields: Mapping[str, Any] = field(default_factory=lambda: CAPPED)
    path: str = CHAT
    key: str = "budgets"
    status: int = 200


WHOLE = Kind("whole answer", 24)
PACED_STREAM = Kind("paced stream of 100 chunks", 3, model=PACED, fields=STREAM)
BURST_STREAM = Kind("burst of 100 chunks", 8, model=BURST, fields=STREAM)
# In other words than the pass-through speaks: to be read beside the burst.
RESPONSE = {"input": MESSAGES, "max_output_tokens": 64, "stream": True}
BURST_RESPONSE = Kind("burst of 100 deltas as a response", 8, BURST_STREAM.name, BURST, RESPONSE, RESPONSES)
ASKED = {"system": MESSAGES[0]["content"], "messages": MESSAGES[1:], "max_tokens": 64, "stream": True}
BURST_MESSAGE = Kind("burst of 100 deltas as a message", 8, BURST_STREAM.name, BURST, ASKED, MESSAGES_API)
PASSED_MESSAGE = Kind("burst of 100 deltas passed on as a message", 8, BURST_STREAM.name, MESSAGE, ASKED, MESSAGES_API)
EMBEDDED = Kind("embedding", 24, model=EMBEDDING, fields={"input": "Why is the sky blue?"}, path=EMBEDDINGS)
KINDS = (
    WHOLE,
    BURST_STREAM,
    BURST_RESPONSE,
    BURST_MESSAGE,
    PASSED_MESSAGE,
    PACED_STREAM,
    EMBEDDED,
    Kind("whole answer put together from a stream", 8, WHOLE.name, model=BURST, fields={"messages": MESSAGES}),
    Kind("whole answer by an alias", 16, WHOLE.name, model=ALIAS),
    Kind("whole answer, key without budgets", 16, WHOLE.name, key="plain"),
    Kind("refusal: 400", 24, WHOLE.name, fields={**CAPPED, "temperature": "hot"}, status=400),
    Kind("refusal: 402", 24, WHOLE.name, key="poor", status=402),
)
# These take a gateway with METRICS_BIND.
WITH_METRICS = (
    Kind("whole answer, with metrics", 24, WHOLE.name),
    Kind("burst of 100 chunks, with metrics", 8, BURST_STREAM.name, model=BURST, fields=STREAM),
)
# This takes a gateway with OTEL_EXPORTER_OTLP_ENDPOINT. What sends the spans is the beat's, and not counted.
WITH_TRACES = (Kind("whole answer, with traces", 24, WHOLE.name),)
# These take a gateway with DATABASE_TRANSACTION_POOLING.
POOLED = (Kind("whole answer, statements unnamed", 24, WHOLE.name),)
# These take a gateway that counts no addresses.
WITHOUT_IP_LIMIT = (
    Kind("whole answer, no limit of addresses", 16, WHOLE.name),
    Kind("whole answer, neither limit nor budgets", 16, WHOLE.name, key="plain"),
)
