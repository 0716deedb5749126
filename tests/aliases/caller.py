"""Calls the alias endpoints with a key from inside the process."""

import json
from dataclasses import dataclass
from typing import Any

from django.test import Client

from accounts.models import Account, ApiKey
from tests.envelope import INSIDES
from tests.factories import new_account, new_key

Json = dict[str, Any]
ALIASES = "/v1/aliases"
ECHO = "sim/test/echo/FRPAR"  # a target that always exists
CHUNKS = "sim/test/chunks/DEFRA"  # another target that always exists
FIELDS = {
    "id",
    "name",
    "full_name",
    "provider",
    "canonical_id",
    "locode",
    "target",
    "fallbacks",
    "created_at",
    "updated_at",
}

INVALID_NAME = (400, "invalid_request_error", "invalid_alias_name", "name")
INVALID = (400, "invalid_request_error", "invalid_request_error", None)
INVALID_TARGET = (422, "invalid_request_error", "invalid_alias_target", "target")
LIMIT_REACHED = (422, "invalid_request_error", "alias_limit_reached", "name")
EXISTS = (409, "invalid_request_error", "alias_exists", "name")
NOT_FOUND = (404, "not_found", "alias_not_found", None)


@dataclass(frozen=True)
class Reply:
    """Holds a status, a body and its headers."""

    status: int
    body: Any
    headers: Any

    @property
    def refusal(self) -> tuple[int, str, str | None, str | None]:
        """Returns what a program branches on, after checking what all errors have in common."""
        assert list(self.body) == ["error"]
        error = self.body["error"]
        assert set(error) == {"type", "message", "code", "param"}
        assert not INSIDES.search(error["message"])
        assert self.headers["Content-Type"] == "application/json"
        assert self.headers["X-Request-Id"].startswith("req-")
        if self.status < 500:
            assert self.headers["x-should-retry"] == "false"
        return self.status, error["type"], error["code"], error["param"]

    @property
    def message(self) -> str:
        text: str = self.body["error"]["message"]
        return text


@dataclass(frozen=True)
class Caller:
    """Holds a key and its account."""

    account: Account
    key: ApiKey
    token: str

    @classmethod
    def of(cls, account: Account | None = None, name: str = "test") -> "Caller":
        account = account or new_account()
        return cls(account, *new_key(account, name))

    def send(self, method: str, path: str, body: object = None, *, content_type: str = "application/json") -> Reply:
        """Sends a body: bytes unchanged, anything else as JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}"}
        response = Client().generic(method, path, data, content_type=content_type, headers=headers)
        return Reply(response.status_code, json.loads(response.content or b"null"), response.headers)

    def get(self, path: str = ALIASES) -> Reply:
        return self.send("GET", path)

    def post(self, **body: object) -> Reply:
        return self.send("POST", ALIASES, body)

    def patch(self, alias: str, **body: object) -> Reply:
        return self.send("PATCH", f"{ALIASES}/{alias}", body)

    def delete(self, alias: str) -> Reply:
        return self.send("DELETE", f"{ALIASES}/{alias}")

    def create(self, name: str = "fast", target: str = ECHO) -> Json:
        """Creates an alias, which must be accepted, and returns it."""
        reply = self.post(name=name, target=target)
        assert reply.status == 201, reply.body
        created: Json = reply.body
        return created

    def read(self, path: str = ALIASES) -> Json:
        """Returns a body that must exist."""
        reply = self.get(path)
        assert reply.status == 200, reply.body
        read: Json = reply.body
        return read

    def names(self) -> list[str]:
        return [alias["name"] for alias in self.read()["aliases"]]

    def events(self, name: str) -> list[Json]:
        """Returns an alias's history, newest first, without what differs from run to run."""
        events = self.read(f"{ALIASES}/{name}/history")["events"]
        return [{key: value for key, value in event.items() if key not in ("id", "created_at")} for event in events]
