"""OpenAI's and Anthropic's JavaScript clients work: tests/node/check.mjs runs them, this module checks the result."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from simulator.openai import vector
from tests.inference.test_embeddings import floats
from tests.servers.customer import Customer
from tests.servers.node import installed
from tests.servers.process import ROOT

Json = dict[str, Any]

PACKAGE = ROOT / "tests" / "node"
BROKE_OFF: Json = {"name": "APIError", "status": None, "code": "provider_error", "param": None}


pytestmark = pytest.mark.process


@pytest.fixture
def read(account: Customer, tmp_path: Path) -> Json:
    """Returns what the client read from the gateway."""
    script = shutil.copy(PACKAGE / "check.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(installed(PACKAGE) / "node_modules")
    command = ["node", str(script), account.gateway.base_url, account.key]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answers: Json = json.loads(done.stdout)
    return answers


def test_the_official_javascript_clients_read_every_answer(read: Json) -> None:
    for dialect, provider in (("openai", "sim"), ("anthropic", "simanthropic")):
        check_chat(read[dialect], provider)
        check_responses(read[dialect], provider)
        check_messages(read[dialect]["messages"], provider)
        assert read["failures"][dialect]["midStream"] == BROKE_OFF
        refused = read["failures"][dialect]["refused"]
        assert (refused["name"], refused["status"]) == ("BadRequestError", 400)
    assert {"sim/test/echo", "simanthropic/claude/echo", "auto/test/echo"} <= {*read["models"]}
    for name in ("embeddings", "convertedEmbeddings"):
        check_embeddings(read[name])
    assert read["failures"]["shape"] == {
        "name": "BadRequestError", "status": 400, "code": "invalid_request_error", "param": "messages"
    }  # fmt: skip


def check_chat(output: Json, provider: str) -> None:
    whole = output["whole"]
    assert (whole["text"], whole["total"], whole["provider"]) == ("hello there", 4, provider)
    assert whole["generation"] == whole["id"]
    assert whole["requestId"].startswith("req-")
    for name in ("streamed", "askedForUsage", "pings"):
        assert output[name] == {"text": "hello there", "usages": [4], "finish": ["stop"]}
    assert output["helper"] == {"text": "hello there", "finish": "stop"}
    assert output["text"] == {"text": "hello there", "streamed": "hello there"}
    for name in ("tools", "streamedTools"):
        assert output[name] == {
            "finish": "tool_calls",
            "calls": [["weather", {"query": "both please"}], ["clock", {"query": "both please"}]],
            "text": "The tool says: weather. clock.",
        }


def check_responses(output: Json, provider: str) -> None:
    for name in ("responses", "streamedResponses"):
        assert output[name] == {
            "text": "hello there",
            "total": 4,
            "provider": provider,
            "items": ["reasoning", "function_call", "function_call"],
            "calls": [["weather", {"query": "both please"}], ["clock", {"query": "both please"}]],
            "final": "The tool says: weather. clock.",
        }


def check_messages(output: Json, provider: str) -> None:
    assert (output["text"], output["usage"], output["provider"]) == ("hello there", [2, 2], provider)
    assert output["streamed"] == ["First I read the question.", "hello there"]
    assert output["calls"] == [["weather", {"query": "both please"}], ["clock", {"query": "both please"}]]
    assert (output["stop"], output["final"], output["counts"]) == ("tool_use", "The tool says: weather. clock.", True)
    assert output["midStream"] is not None
    assert (output["refused"]["name"], output["refused"]["status"]) == ("BadRequestError", 400)


def check_embeddings(output: Json) -> None:
    assert output["byDefault"] == [floats(vector(text, 8)) for text in ("hello there", "hi")]
    assert output["floats"] == floats(vector("hello there", 8))
    assert output["tokens"] == 3
