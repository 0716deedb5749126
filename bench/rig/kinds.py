"""Lists the kinds of request that are counted one by one. `bench.rig.answers` has their models."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.rig import answers
from bench.rig.answers import BURST, EMBEDDING, LONG, MESSAGE, PACED, REPLY

ALIAS = "bench"

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
    """Describes a kind of request, and how many are counted.

    The pass-through's figures come from the same kind, unless `compared_with` names another.
    """

    name: str
    count: int
    compared_with: str = ""
    model: str = REPLY
    fields: Mapping[str, Any] = field(default_factory=lambda: CAPPED)
    path: str = CHAT
    key: str = "limited"
    status: int = 200


WHOLE = Kind("whole answer, at most 64 tokens", 24)
ORDINARY = Kind("whole answer", 8, model=BURST, fields={"messages": MESSAGES})
PACED_STREAM = Kind("paced stream of 100 chunks", 3, model=PACED, fields=STREAM)
BURST_STREAM = Kind("burst of 100 chunks", 8, model=BURST, fields=STREAM)
# The pass-through does not speak this API, so the row is to be compared with the burst.
RESPONSE = {"input": MESSAGES, "max_output_tokens": 64, "stream": True}
BURST_RESPONSE = Kind("burst of 100 deltas as a response", 8, BURST_STREAM.name, BURST, RESPONSE, RESPONSES)
ASKED = {"system": MESSAGES[0]["content"], "messages": MESSAGES[1:], "max_tokens": 64, "stream": True}
BURST_MESSAGE = Kind("burst of 100 deltas as a message", 8, BURST_STREAM.name, BURST, ASKED, MESSAGES_API)
PASSED_MESSAGE = Kind("burst of 100 deltas passed on as a message", 8, BURST_STREAM.name, MESSAGE, ASKED, MESSAGES_API)
EMBEDDED = Kind("embedding", 24, model=EMBEDDING, fields={"input": "Why is the sky blue?"}, path=EMBEDDINGS)
BASIC = (
    WHOLE,
    ORDINARY,
    BURST_STREAM,
    BURST_RESPONSE,
    BURST_MESSAGE,
    PASSED_MESSAGE,
    PACED_STREAM,
    EMBEDDED,
    Kind("whole answer by an alias", 16, WHOLE.name, model=ALIAS),
    Kind("whole answer, key without limits", 16, WHOLE.name, key="plain"),
    Kind("whole answer, key with a policy", 16, WHOLE.name, key="policed"),
    Kind("refusal: 400", 24, WHOLE.name, fields={**CAPPED, "temperature": "hot"}, status=400),
    Kind("refusal: 402", 24, WHOLE.name, key="poor", status=402),
)


def _burst(name: str, model: str, **fields: Any) -> Kind:
    return Kind(f"burst, {name}", 3, model=model, fields={**STREAM, **fields})


def _agents_turn() -> dict[str, Any]:
    """Returns a coding agent's request: 200 messages, a tool call in every second pair of them, and 40 tools."""
    text = "The tests pass now, but the lines above still name the old module; see the report below. " * 5
    messages: list[dict[str, Any]] = [{"role": "system", "content": text}]
    for number in range(66):
        arguments = json.dumps({"path": f"src/module_{number}.py", "text": text})
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "tool_1", "arguments": arguments}}
        messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": text},
        ]
    messages.append({"role": "user", "content": text})
    properties = {
        name: {"type": "string", "description": f"The {name} that the tool works on, relative to the root."}
        for name in ("path", "old", "new", "pattern", "reason", "mode")
    }
    schema = {"type": "object", "properties": properties, "required": ["path"], "additionalProperties": False}
    tools = [
        {"type": "function", "function": {"name": f"tool_{number}", "description": text, "parameters": schema}}
        for number in range(40)
    ]
    return {"messages": messages, "tools": tools, "max_tokens": 4096, "stream": True}


def _prompt(size: int) -> dict[str, Any]:
    return {**CAPPED, "messages": [{"role": "user", "content": ("Why is the sky blue? " * (size // 21 + 1))[:size]}]}


BURSTS = (
    _burst("tool calls", answers.TOOL_CALLS),
    _burst("obfuscation", answers.OBFUSCATION),
    _burst("logprobs", answers.LOGPROBS, logprobs=True),
    _burst("usage in each chunk", answers.USAGES),
    _burst("escapes", answers.ESCAPES),
    _burst("moving created", answers.MOVING),
    _burst("four choices", answers.CHOICES, n=4),
    _burst("JSON in text", answers.JSON_TEXT),
    _burst("anthropic behind chat", MESSAGE),
)
LARGE = (
    Kind("whole answer of 400 chunks", 4, model=LONG, fields={"messages": MESSAGES}),
    Kind("agent's turn", 3, model=answers.AGENT, fields=_agents_turn()),
    Kind("prompt of 100 KB", 4, fields=_prompt(100_000)),
    Kind("prompt of 1 MB", 2, fields=_prompt(1_000_000)),
)
KINDS = (*BASIC, *BURSTS, *LARGE)
# These need a gateway with METRICS_BIND.
WITH_METRICS = (
    Kind("whole answer, with metrics", 24, WHOLE.name),
    Kind("burst of 100 chunks, with metrics", 8, BURST_STREAM.name, model=BURST, fields=STREAM),
)
# This needs a gateway with OTEL_EXPORTER_OTLP_ENDPOINT. The beat sends the spans, which is not counted.
WITH_TRACES = (Kind("whole answer, with traces", 24, WHOLE.name),)
# These need a gateway with DATABASE_TRANSACTION_POOLING.
POOLED = (Kind("whole answer, statements unnamed", 24, WHOLE.name),)
# These need a gateway without a limit per address.
WITHOUT_IP_LIMIT = (
    Kind("whole answer, no limit of addresses", 16, WHOLE.name),
    Kind("whole answer, no limits", 16, WHOLE.name, key="plain"),
)
