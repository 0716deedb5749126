"""Judges one request of a replay."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.replay import client, compare
from tests.replay.bill import Tokens
from tests.replay.client import Reply
from tests.replay.recordings import Json
from tests.replay.replay_requests import ReplayRequest
from tests.replay.truth import Truth, truth_of

OF_THE_OPERATOR = re.compile("api key|exceeded your current quota", re.IGNORECASE)
NO_MODEL = re.compile("model .* does not exist|model .* not found", re.IGNORECASE)
VERDICTS = ("passed", "refused", "failed")
# The gateway sets these fields in the upstream request, or expresses them differently.
RESET = ("model", "stream", "stream_options", "store", "max_tokens", "max_completion_tokens")


@dataclass(slots=True)
class Outcome:
    """Holds the verdict on one request. Its record must show `cost`; if None, the cost of the record's tokens."""

    request: ReplayRequest
    verdict: str = "passed"
    reasons: list[str] = field(default_factory=list)
    generation: str | None = None
    cost: Decimal | None = None
    flags: frozenset[str] = frozenset()
    estimated: bool = False
    interrupted: bool = False

    def fail(self, reason: str) -> None:
        self.verdict = "failed"
        self.reasons.append(reason)


def judged(request: ReplayRequest, reply: Reply, upstream: Json | None) -> Outcome:
    """Judges one request. `upstream` is the request that reached its provider, if one did."""
    outcome = Outcome(request)
    try:
        for reason in _faults(outcome, truth_of(request.recording), reply, upstream):
            outcome.fail(reason)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        outcome.fail(f"cannot be read: {error!r}: {reply.body[:200]}")
    return outcome


def _faults(outcome: Outcome, truth: Truth, reply: Reply, upstream: Json | None) -> Iterator[str]:
    request = outcome.request
    if request.refused_for:
        outcome.verdict = "refused"
        yield from _of_refusal(request, reply, upstream)
    elif truth.refusal is not None:
        if upstream is None and reply.status == 400 and truth.refusal[0] == 400:
            outcome.verdict = "refused"  # as the provider did: a field has the wrong shape or is out of bounds
        else:
            yield from _of_error(request, *truth.refusal, reply)
    elif truth.break_off is not None:
        if not request.streamed:  # no part of a whole answer was sent yet
            yield from _of_error(request, *truth.break_off, reply)
        else:
            outcome.generation = reply.headers["x-generation-id"]
            outcome.interrupted = outcome.estimated = True
            message = client.read(request.form, reply.body, streamed=True).failed
            yield from _of_words(truth.break_off[1], message)
    elif reply.status != 200:
        if _is_unreadable(request, truth, reply):
            outcome.verdict = "refused"
        else:
            yield f"{reply.status} {reply.body[:300]}"
    else:
        yield from _of_answer(outcome, truth, reply)
        if request.way == "native" and upstream is not None:
            yield from _of_request(request, reply, upstream)


def _of_refusal(request: ReplayRequest, reply: Reply, upstream: Json | None) -> Iterator[str]:
    fields = ", ".join(sorted(request.refused_for))
    if reply.status != 400 or upstream is not None:
        yield f"not refused for {fields}: {reply.status} {reply.body[:200]}"
    elif (param := json.loads(reply.body)["error"]["param"]) not in request.refused_for:
        yield f"refused for {param}, not for {fields}"


def _of_error(request: ReplayRequest, status: int, words: str, reply: Reply) -> Iterator[str]:
    """Checks that an error of the provider is passed on as docs/api.md#upstream-errors describes."""
    if status in (400, 429) and OF_THE_OPERATOR.search(words):
        message = json.loads(reply.body)["error"]["message"]
        if reply.status != 503 or "refuses the gateway itself" not in message:
            yield f"{reply.status} for an error that concerns the operator: {reply.body[:200]}"
        return
    if status == 400 and NO_MODEL.search(words):
        status = 404  # the catalogue is at fault, not the request
    expected = 400 if status in (400, 413, 422) else 503
    if status == 429 and request.form in ("messages", "responses"):
        expected = 429
    if reply.status != expected:
        yield f"{reply.status} for the provider's {status}: {reply.body[:200]}"
        return
    is_futile = status < 500 and status not in (408, 409, 425, 429)
    if (reply.headers.get("x-should-retry") == "false") != is_futile:
        yield f"x-should-retry is {reply.headers.get('x-should-retry')} for the provider's {status}"
    if status in (401, 403):
        # The provider quotes fragments of the key: no word that looks like one may reach the client.
        for word in re.findall(r"[^\s\"'.,:]{5,}", words):
            if re.search(r"[\d*<>_-]", word) and word in reply.body:
                yield f"a part of a key from the provider's message: {word}"
    else:
        yield from _of_words(words, json.loads(reply.body)["error"]["message"])


def _of_words(words: str, message: str) -> Iterator[str]:
    """Checks that the beginning of the provider's message is quoted. Addresses in it are never quoted."""
    missing = [word for word in _plain_words(words[:200])[:-1] if word not in _plain_words(message)]
    if missing or not message:
        yield f"does not quote {' '.join(missing)!r}: {message}"


def _plain_words(text: str) -> list[str]:
    return re.findall(r"(?<!\S)[A-Za-z]{3,}(?!\S)", re.sub(r"\S*(://|@)\S*", " ", text))


def _is_unreadable(request: ReplayRequest, truth: Truth, reply: Reply) -> bool:
    """Tells whether a client of floats was refused other numbers, as docs/providers.md describes."""
    if request.body.get("encoding_format") is None:
        return False
    if request.form != "embeddings" or reply.status != 503 or reply.headers.get("x-should-retry") != "false":
        return False
    return not all(map(compare.is_readable, compare.vectors_of(truth.answer)))


def _of_answer(outcome: Outcome, truth: Truth, reply: Reply) -> Iterator[str]:
    request = outcome.request
    outcome.generation = reply.headers.get("x-generation-id")
    outcome.cost, outcome.estimated, outcome.flags = truth.cost, truth.tokens is None, truth.flags
    answer = client.read(request.form, reply.body, streamed=request.streamed)
    if answer.failed:
        yield f"broke: {answer.failed[:300]}"
        return
    # Choices beyond those that were requested are left out.
    truth.choices = {index: each for index, each in truth.choices.items() if index < (request.body.get("n") or 1)}
    yield from _of_bill(request.form, truth, answer.whole["usage"])
    if request.form == request.recording.api:
        yield from compare.in_own_form(request, truth, answer)
    else:
        yield from compare.in_form(request.form, truth, answer)


def _of_bill(form: str, truth: Truth, usage: Json) -> Iterator[str]:
    yield from _revealed_costs(usage)
    if truth.tokens is None:
        return  # not reported, so estimated: the ledger is compared with its own tokens
    if Decimal(usage["cost"]) != truth.cost:
        yield f"cost is {usage['cost']}, not {truth.cost}"
    for name, expected in _published(form, truth.tokens).items():
        got: Any = usage
        for part in name.split("."):
            got = got.get(part) if isinstance(got, dict) else None
        if expected is not None and got != expected:
            yield f"usage.{name} is {got}, not {expected}"


def _revealed_costs(usage: Json, path: str = "usage.") -> Iterator[str]:
    """Checks that the answer does not reveal what the operator pays."""
    for name, value in usage.items():
        if isinstance(value, dict):
            yield from _revealed_costs(value, f"{path}{name}.")
        if path + name != "usage.cost" and ("cost" in name or "price" in name):
            yield f"{path}{name} is published"


def _published(form: str, tokens: Tokens) -> dict[str, int | None]:
    """Returns the members of a form's usage. A count that was not reported may be absent or 0."""
    prompt, completion = tokens.prompt, tokens.completion
    writes = [count for count in (tokens.written, tokens.written_1h) if count is not None]
    written = sum(writes) if writes else None
    if form == "messages":
        return {
            "input_tokens": tokens.uncached,
            "cache_read_input_tokens": tokens.read,
            "cache_creation_input_tokens": written,
            "output_tokens": completion,
            "output_tokens_details.thinking_tokens": tokens.reasoning,
        }
    names = ("input", "output") if form == "responses" else ("prompt", "completion")
    return {
        f"{names[0]}_tokens": prompt,
        f"{names[0]}_tokens_details.cached_tokens": tokens.read,
        f"{names[0]}_tokens_details.cache_write_tokens": written,
        f"{names[1]}_tokens": completion,
        f"{names[1]}_tokens_details.reasoning_tokens": tokens.reasoning,
        "total_tokens": prompt + completion,
    }


def _of_request(request: ReplayRequest, reply: Reply, upstream: Json) -> Iterator[str]:
    """Checks that the provider received the client's request, apart from the adjustments that the answer lists."""
    left_out = (*RESET, *reply.headers.get("x-gateway-adjusted-params", "").replace(",", " ").split())
    sent, came = (
        {name: value for name, value in body.items() if name not in left_out}
        for body in (_in_plain_words(request.body), upstream["body"])
    )
    yield from compare.differences("requested ", sent, came)
    caps = [
        request.body[name] for name in ("max_completion_tokens", "max_tokens") if request.body.get(name) is not None
    ]
    if caps and caps[0] not in (upstream["body"].get("max_tokens"), upstream["body"].get("max_completion_tokens")):
        yield f"the cap of {caps[0]} is missing upstream"


def _in_plain_words(body: Json) -> Json:
    """Returns the request in terms that every provider understands.

    A tool is a function, `any` tool is `required`, a prompt is not a list, and fields of other routers' clients are
    mapped as docs/api.md#other-fields describes.
    """
    body = dict(body)
    choice, prompt = body.get("tool_choice"), body.get("prompt")
    if body.get("tools"):
        body["tools"] = [{"type": "function", **tool} if "function" in tool else tool for tool in body["tools"]]
    if isinstance(choice, dict) and "function" in choice:
        body["tool_choice"] = {"type": "function", **choice}
    elif choice == "any":
        body["tool_choice"] = "required"
    if isinstance(prompt, list) and len(prompt) == 1:
        (body["prompt"],) = prompt
    if "messages" in body:
        body.pop("usage", None)
        if isinstance(reasoning := body.pop("reasoning", None), dict):
            body["reasoning_effort"] = body.get("reasoning_effort") or _effort(reasoning)
    return body


def _effort(reasoning: Json) -> str | None:
    if "effort" in reasoning:
        return reasoning["effort"]
    if (tokens := reasoning.get("max_tokens")) is not None:
        return "low" if tokens < 4096 else "medium" if tokens < 16384 else "high"
    return {True: "medium", False: "none"}.get(reasoning.get("enabled", ""))
