"""Turns a chat's normalised answer into a response, whole or event by event."""

import time
from collections.abc import Mapping
from typing import Any

from catalogue.pricing import without_prices
from gateway.edge.checks import Json
from gateway.edge.responses import without_unknown
from gateway.errors import ApiError, ProviderRateLimited
from gateway.ids import RESPONSE_PREFIX

from ...deltas import Delta, FinishDelta, deltas_of
from ...words import object_of, without
from ..framing import DONE, Report, framed
from .output import CITED, COMPLETED, INCOMPLETE, Output
from .requests import AnswerContext

FAILED = "failed"
# The reasons for an incomplete response, by the chat's finish reason.
INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


def response_of(normalised: Mapping[str, Any], context: AnswerContext, report: Report) -> Json:
    """Turns a whole chat answer into a response."""
    output = Output(_identity(normalised), normalised["model"], context)
    (choice, *_) = normalised["choices"]
    message = choice["message"]
    calls = [{**each, "index": index} for index, each in enumerate(message.get("tool_calls") or ())]
    cited = {name: message[name] for name in CITED if name in message}
    for part in (without(message, (*CITED, "tool_calls")), cited, {"tool_calls": calls}):
        for delta in deltas_of(0, part):
            delta.choice["logprobs"] = choice.get("logprobs")
            output.add(delta)  # the events are not needed
    status = INCOMPLETE if choice["finish_reason"] in INCOMPLETE_REASONS else COMPLETED
    output.close(status)
    return response_object(normalised, context, output.items, choice["finish_reason"], report)


class ResponseFraming:
    """Writes a streamed response, as framing.Framing describes.

    Events are numbered from 0 without a gap, and every ending is followed by `[DONE]`.
    """

    def __init__(self, chat: Mapping[str, Any], context: AnswerContext) -> None:
        self._chat, self._context = chat, context
        self._output = Output(_identity(chat), chat["model"], context)
        self._sequence = 0
        self._finish: str | None = None

    def frames(self, pending: list[Delta]) -> list[bytes]:
        frames: list[bytes] = [] if self._sequence or not pending else self._opening()
        for delta in pending:
            frames += map(self._frame, self._output.add(delta))
            if isinstance(delta, FinishDelta):
                self._finish = delta.reason
        return frames

    def finished(self, report: Report) -> list[bytes]:
        status = INCOMPLETE if self._finish in INCOMPLETE_REASONS else COMPLETED
        frames = [*map(self._frame, self._output.close(status))]
        response = response_object(self._chat, self._context, self._output.items, self._finish, report)
        return [*frames, self._frame({"type": f"response.{status}", "response": response}), DONE]

    def stalled(self, error: ApiError, report: Report) -> list[bytes]:
        return [*map(self._frame, self._output.close(INCOMPLETE)), *self._failed(error, report)]

    def broke(self, error: ApiError, report: Report | None) -> list[bytes]:
        event = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return [*map(self._frame, self._output.close(INCOMPLETE)), self._frame(event), *self._failed(error, report)]

    def _opening(self) -> list[bytes]:
        begun = {
            **response_object(self._chat, self._context, [], None, None),
            "status": "in_progress",
            "completed_at": None,
        }
        return [self._frame({"type": f"response.{what}", "response": begun}) for what in ("created", "in_progress")]

    def _failed(self, error: ApiError, report: Report | None) -> list[bytes]:
        response = response_object(self._chat, self._context, self._output.items, None, report)
        response |= {"status": FAILED, "completed_at": None, "error": fault_of(error)}
        return [self._frame({"type": "response.failed", "response": response}), DONE]

    def _frame(self, event: Json) -> bytes:
        event["sequence_number"] = self._sequence
        self._sequence += 1
        return framed(event, event["type"].encode())


def response_object(
    chat: Mapping[str, Any], context: AnswerContext, items: list[Json], finish: str | None, report: Report | None
) -> Json:
    """Builds a response with its request's fields, its items, and `usage` and `gateway_metadata` if it was settled."""
    reason = INCOMPLETE_REASONS.get(finish or "")
    response = {
        "id": chat["id"],
        "object": "response",
        "created_at": chat["created"],
        "completed_at": None if reason else int(time.time()),
        "status": INCOMPLETE if reason else COMPLETED,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": chat["model"],
        "output": items,
        **context.echo,
        "usage": None,
    }
    if report is not None:
        response |= {"usage": usage_of(report["usage"]), "gateway_metadata": report["gateway_metadata"]}
    return response


def fault_of(error: ApiError) -> Json:
    """Returns the `error` of a failed response, with one of OpenAI's codes."""
    code = error.code if isinstance(error, ProviderRateLimited) else "server_error"
    return {"code": code, "message": error.message}


def usage_of(usage: Mapping[str, Any]) -> Json:
    """Renames a chat's usage to the names of a response. Counts that clients require are 0 if they are unknown."""
    named = dict(usage)
    prompt = named.pop("prompt_tokens_details", {})
    completion = named.pop("completion_tokens_details", {})
    return {
        "input_tokens": named.pop("prompt_tokens"),
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, **without_unknown(prompt)},
        "output_tokens": named.pop("completion_tokens"),
        "output_tokens_details": {"reasoning_tokens": 0, **without_unknown(completion)},
        **named,
    }


def _identity(chat: Mapping[str, Any]) -> str:
    """Returns a response's id without its prefix: the ids of its items contain this part."""
    identity: str = chat["id"]
    return identity.removeprefix(RESPONSE_PREFIX)


def with_bill(response: Mapping[str, Any], report: Report) -> Json:
    """Returns an upstream's own response with our figures in its usage, and with `gateway_metadata`."""
    ours, theirs = usage_of(report["usage"]), without_prices(object_of(response.get("usage")))
    for name in ("input_tokens_details", "output_tokens_details"):
        ours[name] |= without_unknown(object_of(theirs.get(name)))
    return {**response, "usage": {**theirs, **ours}, "gateway_metadata": report["gateway_metadata"]}
