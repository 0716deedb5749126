"""Every endpoint of the API: what it takes, answers and refuses. The OpenAPI document and the pages are made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rest_framework import serializers

from aliases.serializers import HistoryQuery, StatsQuery
from billing.api import GenerationsQuery
from catalogue.api import ModelsQuery, ProvidersQuery
from catalogue.routing.routes import ALIAS_RULE
from gateway import errors
from gateway.errors import ApiError
from inference.wire_forms import WIRE_FORMS
from inference.wire_forms.chat import ChatCompletionRequest
from inference.wire_forms.completions import CompletionRequest
from inference.wire_forms.embeddings import EmbeddingsRequest
from inference.wire_forms.messages import CountTokensRequest, MessagesRequest
from inference.wire_forms.responses.requests import ResponsesRequest

from .answers import STRING, Schema, described, nullable, record

Json = dict[str, Any]

EVERYWHERE: Final = (
    *(errors.InvalidRequest, errors.MissingAuthorization, errors.ApiKeyMalformed, errors.ApiKeyNotRegistered),
    *(errors.ApiKeyExpired, errors.RequestTooLarge, errors.TooManyRequests, errors.ApiError, errors.WorkerBusy),
)
INFERENCE: Final = (
    *(*EVERYWHERE, errors.UpstreamRefused, errors.InvalidAliasName, errors.InsufficientCredits, errors.NotFound),
    *(errors.AliasNotFound, errors.ModelNotFound, errors.KeyBudgetSpent, errors.TooManyAtOnce, errors.ProviderError),
    *(errors.ProviderUnavailable, errors.ModelUnavailable, errors.ProviderNotConfigured),
    *(errors.ProviderQuotaExhausted, errors.ServiceUnavailable, errors.ProviderTimeout),
)

# In the forms that tell a provider's rate limit as one.
RATE_LIMITED: Final = (*INFERENCE, errors.ProviderRateLimited)


@dataclass(frozen=True)
class Operation:
    """One method of one path below `/v1`. Schemas are names of components; `None` is an answer without a body."""

    method: str
    path: str
    id: str
    summary: str
    group: str
    answers: Mapping[int, str | None]
    refusals: tuple[type[ApiError], ...] = EVERYWHERE
    query: type[serializers.Serializer[Any]] | None = None
    body: type[serializers.Serializer[Any]] | Schema | None = None
    more_fields: Schema = field(default_factory=dict)  # of the body, which are checked elsewhere
    events: str | None = None  # the component of a stream's events
    example: Json | None = None  # a request
    is_inference: bool = False
    errors: tuple[str, ...] = ("Error",)
    to_anthropic: str | None = None  # the answer to a request with `anthropic-version`
    more_parameters: Mapping[str, Schema] = field(default_factory=dict)  # of the query, checked elsewhere
    needs_key: bool = True


_HELLO: Final = [{"role": "user", "content": "Hello"}]
_TEXT: Final = {"type": ["string", "null"]}  # null means absent
_TARGET_FIELDS: Final = {
    "provider": described(_TEXT, "The provider's slug."),
    "canonical_id": described(_TEXT, "`{creator}/{model}`."),
    "locode": described(_TEXT, "Absent means `global`; a repoint of an alias that is pinned to a place must send it."),
}
_TARGET: Final = {
    **_TARGET_FIELDS,
    "target": {
        "anyOf": [described(_TEXT, "`provider/creator/model[/locode]`"), record({}, _TARGET_FIELDS)],
        "description": "In place of the three fields.",
    },
}
_NAME: Final = described({"type": "string", "minLength": 1, "maxLength": 64}, f"{ALIAS_RULE}. Uppercase is lowered.")

OPERATIONS: Final = (
    Operation(
        "post",
        "/chat/completions",
        "createChatCompletion",
        "A chat completion, whole or streamed",
        "Inference",
        {200: "ChatCompletion"},
        INFERENCE,
        body=ChatCompletionRequest,
        events="ChatCompletionChunk",
        example={"model": "sim/demo/echo", "messages": _HELLO},
        is_inference=True,
    ),
    Operation(
        "post",
        "/completions",
        "createCompletion",
        "A text completion, whole or streamed",
        "Inference",
        {200: "TextCompletion"},
        INFERENCE,
        body=CompletionRequest,
        events="TextCompletion",
        example={"model": "sim/demo/echo", "prompt": "Hello"},
        is_inference=True,
    ),
    Operation(
        "post",
        "/embeddings",
        "createEmbedding",
        "A vector for each input",
        "Inference",
        {200: "EmbeddingList"},
        INFERENCE,
        body=EmbeddingsRequest,
        example={"model": "sim/demo/embedding", "input": ["Hello"]},
        is_inference=True,
    ),
    Operation(
        "post",
        "/responses",
        "createResponse",
        "A response, whole or streamed, of which nothing is kept",
        "Inference",
        {200: "Response"},
        RATE_LIMITED,
        body=ResponsesRequest,
        more_fields={"input": {"type": ["string", "array"], "items": {"type": "object"}}},
        events="ResponseEvent",
        example={"model": "sim/demo/echo", "input": "Hello"},
        is_inference=True,
    ),
    Operation(
        "post",
        "/responses/input_tokens",
        "countResponseInput",
        "How many tokens an input has, estimated, for nothing",
        "Inference",
        {200: "InputTokens"},
        INFERENCE,
        body=ResponsesRequest,
        more_fields={"input": {"type": ["string", "array"], "items": {"type": "object"}}},
        example={"model": "sim/demo/echo", "input": "Hello"},
        is_inference=True,
    ),
    Operation(
        "post",
        "/messages",
        "createMessage",
        "Anthropic's Messages API, whole or streamed",
        "Inference",
        {200: "Message"},
        RATE_LIMITED,
        body=MessagesRequest,
        events="MessageEvent",
        example={"model": "sim/demo/echo", "max_tokens": 100, "messages": _HELLO},
        is_inference=True,
        errors=("MessageError",),
    ),
    Operation(
        "post",
        "/messages/count_tokens",
        "countMessageTokens",
        "How many tokens a prompt has, by the provider where it tells",
        "Inference",
        {200: "MessageTokens"},
        RATE_LIMITED,
        body=CountTokensRequest,
        example={"model": "sim/demo/echo", "messages": _HELLO},
        is_inference=True,
        errors=("MessageError",),
    ),
    Operation(
        "get",
        "/models",
        "listModels",
        "What can be served now",
        "Catalogue",
        {200: "ModelList", 304: None},
        (*EVERYWHERE, errors.ServiceUnavailable),
        query=ModelsQuery,
        errors=("Error", "MessageError"),
        to_anthropic="AnthropicModelPage",
        more_parameters={
            "limit": described(STRING, "With `anthropic-version`: models on a page, 1 to 1,000. Absent means 20."),
            "after_id": described(STRING, "With `anthropic-version`: the page behind this model."),
            "before_id": described(STRING, "With `anthropic-version`: the page before this model."),
        },
    ),
    Operation(
        "get",
        "/models/{model_id}",
        "readModel",
        "One model, by a 3-part, 4-part or auto id with its slashes",
        "Catalogue",
        {200: "ModelInfo"},
        (*EVERYWHERE, errors.NotFound, errors.ServiceUnavailable),
        errors=("Error", "MessageError"),
        to_anthropic="AnthropicModel",
    ),
    Operation(
        "get",
        "/providers",
        "listProviders",
        "The configured providers and their status",
        "Catalogue",
        {200: "ProviderList"},
        (*EVERYWHERE, errors.ServiceUnavailable),
        query=ProvidersQuery,
    ),
    Operation(
        "get",
        "/generations",
        "listGenerations",
        "The calling key's records, newest first",
        "Records",
        {200: "GenerationList"},
        query=GenerationsQuery,
    ),
    Operation(
        "get",
        "/generation/{generation_id}",
        "readGeneration",
        "One record of the account: cost, latency, routing",
        "Records",
        {200: "GenerationStats"},
        (*EVERYWHERE, errors.NotFound),
    ),
    Operation(
        "get",
        "/metrics/{generation_id}",
        "readMetrics",
        "One record's tokens, energy and carbon",
        "Records",
        {200: "GenerationMetrics"},
        (*EVERYWHERE, errors.NotFound),
    ),
    Operation("get", "/aliases", "listAliases", "The account's aliases", "Aliases", {200: "AliasList"}),
    Operation(
        "post",
        "/aliases",
        "createAlias",
        "Create an alias",
        "Aliases",
        {201: "Alias"},
        (
            *(*EVERYWHERE, errors.InvalidAliasName, errors.AliasExists, errors.InvalidAliasTarget),
            *(errors.AliasLimitReached, errors.ServiceUnavailable),
        ),
        body=record({"name": _NAME}, _TARGET),
        example={"name": "fast", "target": "sim/demo/echo/FRPAR"},
    ),
    Operation(
        "get",
        "/aliases/{name}",
        "readAlias",
        "One alias",
        "Aliases",
        {200: "Alias"},
        (*EVERYWHERE, errors.AliasNotFound),
    ),
    Operation(
        "patch",
        "/aliases/{name}",
        "changeAlias",
        "Rename, repoint, or both at once",
        "Aliases",
        {200: "Alias"},
        (
            *(*EVERYWHERE, errors.InvalidAliasName, errors.AliasNotFound, errors.AliasExists),
            *(errors.InvalidAliasTarget, errors.ServiceUnavailable),
        ),
        body=record({}, {"name": nullable(_NAME), **_TARGET}),
        example={"target": "sim/demo/echo/global"},
    ),
    Operation(
        "delete",
        "/aliases/{name}",
        "deleteAlias",
        "Delete it; the name is free at once",
        "Aliases",
        {204: None},
        (*EVERYWHERE, errors.AliasNotFound),
    ),
    Operation(
        "get",
        "/aliases/{name}/stats",
        "readAliasStats",
        "What it was used for, by route",
        "Aliases",
        {200: "AliasStats"},
        (*EVERYWHERE, errors.AliasNotFound, errors.ServiceUnavailable),
        query=StatsQuery,
    ),
    Operation(
        "get",
        "/aliases/{name}/history",
        "readAliasHistory",
        "What happened to it, newest first",
        "Aliases",
        {200: "AliasHistory"},
        (*EVERYWHERE, errors.AliasNotFound),
        query=HistoryQuery,
    ),
    Operation("get", "/openapi.json", "readOpenApi", "This document", "About", {200: None}, (), needs_key=False),
)

PATH_PARAMETERS: Final = {
    "model_id": described(STRING, "Slashes plain, or encoded as `%2F`."),
    "generation_id": described(STRING, "`gen-`, `resp_` or `msg_`, and 32 hex digits."),
    "name": described(STRING, "The bare name; uppercase is lowered."),
}
HEADERS: Final = {
    "X-Request-Id": "On every response: `req-` and 32 hex digits. Quote it where a request failed.",
    "request-id": "The same, where the client is one of Anthropic's.",
    "X-Generation-Id": "The id of the record of this request; on 503 where contradictory usage was recorded.",
    "X-Gateway-Adjusted-Params": "The parameters that were changed or left out for this provider.",
    "x-ratelimit-limit-requests": "The key's requests in any 60 seconds. The six are there where the key has budgets.",
    "x-ratelimit-remaining-requests": "What is left of them.",
    "x-ratelimit-reset-requests": "How long until all of them are there again: `0s`, `17s`, `1m1s`.",
    "x-ratelimit-limit-tokens": "The key's tokens in any 60 seconds.",
    "x-ratelimit-remaining-tokens": "What is left of them.",
    "x-ratelimit-reset-tokens": "How long until all of them are there again.",
    "Retry-After": "Whole seconds, at least 1.",
    "x-should-retry": "`false` where the same request would fail again.",
    "WWW-Authenticate": "`Bearer`.",
    "Allow": "The methods that the path has; on every answer of it that no inference endpoint gives, and to OPTIONS.",
    "Cache-Control": "`no-cache` on streams; how long others may be kept.",
    "X-Accel-Buffering": "`no` on streams: nginx would collect them.",
    "Access-Control-Allow-Origin": "`*`: this document may be read by pages of other origins, and nothing else.",
    "ETag": "For `If-None-Match`; not in the pages of Anthropic's clients.",
    "X-Data-As-Of": "Until when all records are in it, where a standby of the database was read.",
}
RATE_LIMITS: Final = tuple(name for name in HEADERS if name.startswith("x-ratelimit"))
OF_ANSWERS: Final = {
    "/models": ("ETag", "Cache-Control"),
    "/openapi.json": ("ETag", "Cache-Control", "Access-Control-Allow-Origin"),
    **dict.fromkeys(("/generations", "/aliases/{name}/stats"), ("X-Data-As-Of",)),
}
COUNTING: Final = frozenset(f"/{form.count_path}" for form in WIRE_FORMS)
