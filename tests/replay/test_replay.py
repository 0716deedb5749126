"""Tests the replay itself: it passes what equals the recording, and finds what differs."""

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.replay.__main__ import main
from tests.replay.recordings import VARIABLE, Json, Recording, read
from tests.replay.running import replayed
from tests.replay.upstream import PlayedProvider
from tests.servers.databases import MigratedDatabases

CHAT_USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 9,
    "total_tokens": 49,
    "prompt_tokens_details": {"cached_tokens": 30},
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}


def recording(id: str, api: str, body: str, **fields: Any) -> Recording:
    usual: Json = {
        "source": "made for this test",
        "provider": "acme",
        "streamed": False,
        "request": {"messages": [{"role": "user", "content": "What is the weather?"}]},
        "request_headers": {},
        "status": 200,
        "headers": {"content-type": "application/json"},
    }
    return Recording(id=id, api=api, body=body, **{**usual, **fields})


def chat(message: Json, finish: str = "stop", usage: Json = CHAT_USAGE) -> str:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"id": "1", "object": "chat.completion", "created": 1, "choices": [choice], "usage": usage})


def events(*payloads: Json) -> str:
    return "".join(f"event: {payload['type']}\ndata: {json.dumps(payload)}\n\n" for payload in payloads)


def message_events(text: str, output_tokens: int = 12) -> str:
    started = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return events(
        {"type": "message_start", "message": {**started, "usage": {"input_tokens": 20, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output_tokens}},
        {"type": "message_stop"},
    )


def response(text: str) -> str:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    return json.dumps(
        {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [item], "usage": usage}
    )


def refused(status: int, message: str, id: str = "refused") -> Recording:
    return recording(id, "chat", json.dumps({"error": {"message": message, "type": "x"}}), status=status)


ASKED_OF_CLAUDE = {"max_tokens": 99, "messages": [{"role": "user", "content": "Hello"}]}
AS_RECORDED = [
    recording("text", "chat", chat({"content": "It rains."})),
    recording("call", "chat", chat({"content": None, "tool_calls": [CALL]}, "tool_calls")),
    recording("claude", "messages", message_events("rains."), streamed=True, headers={}, request=ASKED_OF_CLAUDE),
    recording("response", "responses", response("It rains."), request={"input": "Hello"}),
    recording(
        "searched", "responses", response("It rains."), request={"input": "Hi", "tools": [{"type": "web_search"}]}
    ),
    refused(400, "The city is not known to us"),
    refused(401, "Incorrect key: sk-12345", "no-key"),
]
DEARER = {**CHAT_USAGE, "prompt_tokens_details": {"cached_tokens": 29}}
# Each line has a recording's id, the body that its provider plays instead, and the reason that must be given.
OTHERWISE = [
    ("text", chat({"content": "It rains"}), "text is 'It rains', not 'It rains.'"),
    # the recording costs 10 x 3.1 + 30 x 0.37 + 9 x 17.3 per million
    ("text", chat({"content": "It rains."}, usage=DEARER), "cost is 0.00020053, not 0.0001978000"),
    ("text", chat({"content": "It rains."}, usage=DEARER), "charged 0.00020053, not 0.0001978000"),
    ("call", chat({"content": None, "tool_calls": [{**CALL, "id": "call_2"}]}, "tool_calls"), "calls.0.id is 'call_2'"),
    ("claude", message_events("rains.", output_tokens=13), "usage.output_tokens is 13, not 12"),
    ("response", response("It snows."), "output.0.content.0.text is 'It snows.'"),
    ("refused", refused(400, "No").body, "does not quote 'The city not'"),
]


def test_what_is_as_recorded_passes_and_what_is_not_is_found(migrated_databases: MigratedDatabases) -> None:
    by_id = {each.id: each for each in AS_RECORDED}
    others = [dataclasses.replace(by_id[id], id=f"other-{number}") for number, (id, *_) in enumerate(OTHERWISE)]
    played = [dataclasses.replace(each, body=body) for each, (_, body, _) in zip(others, OTHERWISE, strict=True)]
    with PlayedProvider([*AS_RECORDED, *played], seed=1) as provider:
        outcomes = replayed([*AS_RECORDED, *others], migrated_databases, provider)
    for number, (_, _, reason) in enumerate(OTHERWISE):
        found = [outcome for outcome in outcomes if outcome.request.recording.id == f"other-{number}"]
        assert {outcome.verdict for outcome in found} == {"failed"}
        assert any(reason in each for each in found[0].reasons), found[0].reasons
    good = [outcome for outcome in outcomes if outcome.request.recording.id in by_id]
    assert [(outcome.request.recording.id, outcome.reasons) for outcome in good if outcome.reasons] == []
    ways = {(outcome.request.recording.id, outcome.request.way): outcome.verdict for outcome in good}
    assert [way for id, way in ways if id == "claude"] == ["native", "cut", "joined", "as-chat", "as-responses"]
    assert (ways["searched", "native"], ways["searched", "plain"]) == ("refused", "passed")


def test_recordings_are_read_and_their_absence_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("Nothing is replayed: there are no recordings")
    file = tmp_path / "acme.jsonl.gz"
    with gzip.open(file, "wt", encoding="utf-8") as lines:
        lines.write(json.dumps(dataclasses.asdict(AS_RECORDED[0]) | {"exact": True}) + "\n")
    assert list(read([file])) == AS_RECORDED[:1]
