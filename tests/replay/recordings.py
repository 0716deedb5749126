"""Answers of real providers that others have recorded: JSON lines, one exchange each, in `*.jsonl.gz`.

They lie beside the checkout, in a folder `recorded` of one of its neighbours, or where `REPLAY_RECORDINGS` says.
"""

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.process import ROOT

VARIABLE = "REPLAY_RECORDINGS"
BESIDE = "*/recorded/*.jsonl.gz"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """One exchange: what was asked of a provider, and what it answered."""

    id: str
    source: str
    provider: str
    api: str  # chat, messages, responses, completions or embeddings
    streamed: bool
    request: Json
    request_headers: Mapping[str, str]
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def is_error(self) -> bool:
        return self.status >= 400


def files() -> list[Path]:
    """The files of recordings; none where there are none."""
    named = os.environ.get(VARIABLE)
    return sorted(Path(named).glob("*.jsonl.gz") if named else ROOT.parent.glob(BESIDE))


def read(files: list[Path]) -> Iterator[Recording]:
    """The recordings of these files, in order."""
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                fields = json.loads(line)
                fields["request"] = fields["request"] or {}
                yield Recording(**{name: fields[name] for name in Recording.__slots__})


def events(body: str) -> Iterator[tuple[str | None, str]]:
    """The events of a stream, each with its name, by the rules of server-sent events."""
    name: str | None = None
    data: list[str] = []
    for line in body.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line:
            if data:
                yield name, "\n".join(data)
            name, data = None, []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            name = line[6:].removeprefix(" ")
    if data:  # cut before the blank line: what came is read all the same
        yield name, "\n".join(data)


def payloads(body: str) -> list[Json]:
    """The JSON of a stream's events, without `[DONE]`. What is no JSON object is left out."""
    found = []
    for _, data in events(body):
        if data.strip() != "[DONE]":
            try:
                payload = json.loads(data)
            except ValueError:
                continue
            if isinstance(payload, dict):
                found.append(payload)
    return found
