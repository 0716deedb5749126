"""What real providers say when they refuse, in each dialect's shape.

The 401 and 403 quote a piece of the key, as OpenAI does: nothing of it may reach a gateway's client.
"""

from inference.simulator.call import Event, Json, Kind

OPENAI = "openai"
ANTHROPIC = "anthropic"

_KEY = "sk-sim...abcd"
# Status -> type, code and message. `_KEY` and the model's name are real upstreams' habits.
_OPENAI: dict[int, tuple[str, str | None, str]] = {
    401: (
        "invalid_request_error",
        "invalid_api_key",
        f"Incorrect API key provided: {_KEY}. You can find your API key at https://platform.example/account/api-keys.",
    ),
    403: ("invalid_request_error", "forbidden", f"The project of {_KEY} does not have access to model `{{model}}`."),
    404: (
        "invalid_request_error",
        "model_not_found",
        "The model `{model}` does not exist or you do not have access to it.",
    ),
    408: ("timeout_error", "request_timeout", "Request timed out."),
    409: ("conflict_error", None, "The request conflicts with one that is being processed."),
    413: ("invalid_request_error", "request_too_large", "The request body is too large."),
    422: ("invalid_request_error", "unprocessable_entity", "The request could not be processed."),
    425: ("server_error", "too_early", "The server is not ready to process the request."),
    429: (
        "requests",
        "rate_limit_exceeded",
        "Rate limit reached for {model} in organization org-sim on requests per min. Please try again in {retry}s.",
    ),
    500: ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
    502: ("server_error", None, "Bad gateway."),
    503: ("server_error", None, "The engine is currently overloaded, please try again later."),
    529: ("server_error", "overloaded", "Overloaded."),
}
_ANTHROPIC: dict[int, tuple[str, str]] = {
    401: ("authentication_error", f"invalid x-api-key: {_KEY}"),
    403: ("permission_error", f"Your API key {_KEY} does not have permission to use {{model}}."),
    404: ("not_found_error", "model: {model}"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit. Retry after {retry}s."),
    500: ("api_error", "Internal server error"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}


def body(dialect: str, status: int, model: str, retry_after: int = 0) -> Json:
    """Write the error that a provider of this dialect sends with this status."""
    if dialect == ANTHROPIC:
        kind, text = _ANTHROPIC.get(status, ("api_error" if status >= 500 else "invalid_request_error", "Refused."))
        return _anthropic(kind, text.format(model=model, retry=retry_after))
    fallback = ("server_error" if status >= 500 else "invalid_request_error", None, "The request was refused.")
    kind, code, text = _OPENAI.get(status, fallback)
    return _openai(kind, text.format(model=model, retry=retry_after), code=code)


def refusal(dialect: str, message: str, param: str | None = None) -> Json:
    """Write the 400 that says what is wrong with a request."""
    if dialect == ANTHROPIC:
        return _anthropic("invalid_request_error", message)
    return _openai("invalid_request_error", message, param=param)


def event(dialect: str) -> Event:
    """Make the event that reports an error in mid-stream."""
    if dialect == ANTHROPIC:
        return Event(Kind.STRUCTURE, _anthropic("overloaded_error", "Overloaded"), "error")
    return Event(Kind.STRUCTURE, _openai("server_error", "The server had an error while processing your request."))


def _openai(kind: str, message: str, *, param: str | None = None, code: str | None = None) -> Json:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _anthropic(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_sim"}
