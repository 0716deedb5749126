"""Reads recorded answers of real providers: JSON lines, one exchange each, in `*.jsonl.gz`.

They are in a folder `recorded` of a neighbour of the checkout, or in the folder named by `REPLAY_RECORDINGS`.
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
    """Holds one exchange: the request to a provider, and its answer."""

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
    """Returns the files of recordings, of which there may be none."""
    named = os.environ.get(VARIABLE)
    return sorted(Path(named).glob("*.jsonl.gz") if named else ROOT.parent.glob(BESIDE))


def read(files: list[Path]) -> Iterator[Recording]:
    """Yields the recordings of these files, in order."""
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                fields = json.loads(line)
                fields["request"] = fields["request"] or {}
                yield Recording(**{name: fields[name] for name in Recording.__slots__})


def events(body: str) -> Iterator[tuple[str | None, str]]:
    """Yields the events of a stream, each with its name, by the rules of server-sent events."""
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
    if data:  # the stream was cut before the blank line: read what came
        yield name, "\n".join(data)


def payloads(body: str) -> list[Json]:
    """Returns the JSON of a stream's events, without `[DONE]` and without data that is not a JSON object."""
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
