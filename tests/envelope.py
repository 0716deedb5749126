"""Reads errors as clients do: the error object of docs/api.md, without any internals."""

import re
from typing import Any, NamedTuple

import requests

REQUEST_ID = re.compile(r"req-[0-9a-f]{32}")
# These words would tell a client how or where the gateway is built.
INSIDES = re.compile(
    r"traceback|django|gunicorn|gevent|psycopg|sqlite|postgres|site-packages|/work|/home|/usr|\.py\b|\bselect\b"
    r"|accounts_|billing_|catalogue_|<html|<!doctype",
    re.IGNORECASE,
)


class Refusal(NamedTuple):
    """Holds the fields that a program branches on."""

    status: int
    type: str
    code: str | None
    param: str | None


def refusal(reply: requests.Response) -> Refusal:
    """Returns the error in a response, after checking what all errors have in common."""
    assert reply.headers["Content-Type"] == "application/json"
    assert REQUEST_ID.fullmatch(reply.headers["X-Request-Id"])
    error = reply.json()["error"]
    assert list(reply.json()) == ["error"]
    return Refusal(reply.status_code, *checked(error))


def checked(error: dict[str, Any]) -> tuple[str, str | None, str | None]:
    """Returns type, code and param of an error object.

    Checks that it has the fields of docs/api.md#error-object and shows no internals.
    """
    assert set(error) == {"type", "message", "code", "param"}
    assert error["message"]
    assert not INSIDES.search(error["message"])
    return error["type"], error["code"], error["param"]


def message(reply: requests.Response) -> str:
    """Returns the message for people."""
    text: str = reply.json()["error"]["message"]
    return text


def faulty_field(reply: requests.Response) -> str | None:
    """Returns the field that a 400 names."""
    status, kind, code, param = refusal(reply)
    assert (status, kind, code) == (400, "invalid_request_error", "invalid_request_error"), reply.text
    assert names_the_field(message(reply), param)
    return param


def names_the_field(message: str, path: str | None) -> bool:
    """Tells whether a message is a sentence about the field, such as "`n` must be at least 1."."""
    return re.fullmatch(rf"`{re.escape(path or '')}` [a-z].*\.", message) is not None
