"""What the demo prints once it answers: the key, the dashboard's login, and lines to paste."""

import json
from collections.abc import Iterator

from .credentials import EMAIL, Credentials

MODEL = "sim/demo/echo"


def lines(credentials: Credentials, origin: str, dashboard: str) -> Iterator[str]:
    """The same at every start with the same secret key and port."""
    yield f"API key: {credentials.token}"
    yield f"Dashboard: {dashboard}/ (login {EMAIL}, password {credentials.password})"
    yield f"Admin: {dashboard}/admin/ (the same login)"
    yield "Try it:"
    yield _curl("curl", credentials.token, origin, stream=False)
    yield _curl("curl -N", credentials.token, origin, stream=True)
    yield "Ctrl-C stops everything."


def _curl(command: str, token: str, origin: str, *, stream: bool) -> str:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello, gateway! Send this sentence back."}]}
    text = json.dumps({**body, "stream": True} if stream else body)
    return (
        f"{command} {origin}/v1/chat/completions -H 'Authorization: Bearer {token}'"
        f" -H 'Content-Type: application/json' -d '{text}'"
    )
