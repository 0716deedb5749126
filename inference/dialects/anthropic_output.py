"""How much a Claude model is to think, and the form of its answer: OpenAI's words in Anthropic's.

`reasoning_effort` becomes what the model takes, which the catalogue says (`thinking`):

- `adaptive`: `thinking: {type: adaptive}` and the effort in `output_config`; `none` switches thinking off.
- `budget`: `thinking: {type: enabled, budget_tokens}` by the table below, at most half of the answer's cap and at least
  the 1,024 that the API asks for; `none` is no thinking, as without the field.

Thinking forbids a forced tool, and other sampling than the usual. A forced tool wins over thinking, thinking over
sampling fields. What is left out is disclosed. The client's own `thinking` and `output_config` win over all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalogue.models import Thinking
from gateway.errors import InvalidRequest

from .anthropic_messages import THINKING, Block

LEAST_BUDGET = 1024
# For each effort, Anthropic's word and a number of tokens.
EFFORTS: Mapping[str, tuple[str, int]] = {
    "minimal": ("low", 1024),
    "low": ("low", 2048),
    "medium": ("medium", 8192),
    "high": ("high", 16384),
    "xhigh": ("xhigh", 32768),
}
LEAST_TOP_P = 0.95  # of a model that thinks
FORCED = ("any", "tool")


@dataclass(slots=True)
class Output:
    """Fields to send, the names of the client's fields that are not sent, and of those that are disclosed."""

    fields: Block = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()


def check_output(body: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for an effort or a form of answer that has no counterpart."""
    effort = body.get("reasoning_effort", "none")
    if effort != "none" and (not isinstance(effort, str) or effort not in EFFORTS):
        names = ", ".join(["none", *EFFORTS])
        raise InvalidRequest.of_field("reasoning_effort", f"must be one of {names}.")
    _form(body.get("response_format"))


def output_of(body: Mapping[str, Any], kind: str, request: Block) -> Output:
    """The thinking and the form that a request asks for, once checked. `request` is what has been translated so far:
    its `max_tokens`, `messages` and `tool_choice` set the bounds.
    """
    config: Block = {}
    output = _thinking(body, kind, request, config)
    if (form := _form(body.get("response_format"))) is not None:
        config["format"] = form
    own = body.get("output_config")
    if config and (own is None or isinstance(own, dict)):
        output.fields["output_config"] = {**config, **(own or {})}
    return output


def _thinking(body: Mapping[str, Any], kind: str, request: Block, config: Block) -> Output:
    effort = body.get("reasoning_effort")
    if effort is None:
        return Output()
    is_forced = request.get("tool_choice", {}).get("type") in FORCED
    if kind == Thinking.ADAPTIVE:
        if effort != "none":
            config["effort"] = EFFORTS[effort][0]
        if "thinking" in body or (is_forced and effort != "none"):
            return Output()
        return _with({"type": "disabled"} if effort == "none" else {"type": "adaptive"}, body)
    if effort == "none" and "thinking" not in body:
        return Output()
    cap = request["max_tokens"]
    if "thinking" in body or is_forced or cap <= LEAST_BUDGET or _continues_without_thinking(request["messages"]):
        return Output(adjusted=("reasoning_effort",))
    budget = max(LEAST_BUDGET, min(EFFORTS[effort][1], cap // 2))
    return _with({"type": "enabled", "budget_tokens": budget}, body)


def _with(thinking: Block, body: Mapping[str, Any]) -> Output:
    """This thinking, without the sampling that it forbids."""
    if thinking["type"] == "disabled":
        return Output({"thinking": thinking})
    unusual = {
        "temperature": body.get("temperature", 1) != 1,
        "top_p": body.get("top_p", 1) < LEAST_TOP_P,
        "top_k": "top_k" in body,
    }
    left_out = tuple(name for name, is_unusual in unusual.items() if is_unusual)
    return Output({"thinking": thinking}, left_out, left_out)


def _continues_without_thinking(messages: Sequence[Block]) -> bool:
    """Whether the model is to go on with a turn that did not begin with thinking, which the API refuses with a budget:
    its own last words, or tool results behind a turn whose thinking was not sent back."""
    if messages and messages[-1]["role"] == "assistant":
        return True
    if len(messages) < 2 or not _begins_with(messages[-1], {"tool_result"}):
        return False
    return not _begins_with(messages[-2], THINKING)


def _begins_with(message: Block, kinds: set[str] | frozenset[str]) -> bool:
    content = message["content"]
    return isinstance(content, list) and bool(content) and content[0].get("type") in kinds


def _form(response_format: Any) -> Block | None:
    """The schema of an answer in JSON; None where any text will do."""
    if response_format is None:
        return None
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind == "text":
        return None
    if kind != "json_schema":
        rule = "must be of the type 'text' or 'json_schema': this model's provider takes no other."
        raise InvalidRequest.of_field("response_format", rule)
    named = response_format.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    if not isinstance(schema, dict):
        raise InvalidRequest.of_field("response_format.json_schema.schema", "must be an object, a JSON Schema.")
    return {"type": "json_schema", "schema": schema}
