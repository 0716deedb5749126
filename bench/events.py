"""`python -m bench.events [PATTERN…]` counts the instructions for one event of a recorded stream.

Reader, normaliser and framing run under callgrind, one event a read (docs/benchmarks.md#recorded-events).
"""

import argparse
import gc
import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.rig.callgrind import Callgrind, CallgrindError, total_of
from tests import plugin
from tests.replay import recordings
from tests.replay.recordings import Recording
from tests.replay.replay_requests import PATHS, PLAIN
from tests.replay.site import MODALITIES
from tests.servers.process import ROOT

LEAST_EVENTS = 20
ACCEPTED = 40.0  # thousand instructions
PLAY = "--play"  # this module is started with it under callgrind
MARK = "getppid"  # callgrind writes a profile at each call of this libc function, which nothing else here calls
CLIENT_FORMS = {"messages": ("messages", "chat")}
EVENT = re.compile(rb".+?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """Holds a recorded stream, and the API in which its client receives it."""

    recording: Recording
    form: str
    blocks: list[bytes]

    @property
    def name(self) -> str:
        own = self.recording.api
        return f"{self.recording.provider} {own}" + ("" if self.form == own else f" -> {self.form}")


def chosen(patterns: Iterable[str]) -> list[RecordedStream]:
    """Returns the recorded streams that are long enough, in every API."""
    is_asked = re.compile("|".join(patterns))
    return [
        RecordedStream(recording, form, blocks)
        for recording in recordings.read(recordings.files())
        if recording.streamed and not recording.is_error and is_asked.search(recording.id)
        if len(blocks := EVENT.findall(recording.body.encode())) >= LEAST_EVENTS
        for form in CLIENT_FORMS.get(recording.api, (recording.api,))
    ]


class RecordedCall:
    """Acts as an upstream call that reads one recorded event after the other, at once."""

    sent_bytes = 0

    def __init__(self, blocks: list[bytes]) -> None:
        self._blocks = iter(blocks)
        self.deadlines = SimpleNamespace(progressed=_nothing, finished=_nothing, is_after_finish=True)

    def read(self) -> bytes:
        return next(self._blocks, b"")


def _nothing(*_arguments: object) -> None:
    """Replaces deadlines, which are not needed here."""


def player(stream: RecordedStream) -> Callable[[], int]:
    """Returns a function that plays the whole stream and returns how many bytes its client got."""
    from django.conf import settings  # noqa: PLC0415  # needs Django's setup
    from django.utils.module_loading import import_string  # noqa: PLC0415
    from rest_framework.exceptions import ValidationError  # noqa: PLC0415

    from gateway.errors import ApiError  # noqa: PLC0415
    from gateway.fastpath.faults import UpstreamFault  # noqa: PLC0415
    from inference.reader import StreamReader  # noqa: PLC0415
    from inference.wire_forms import WIRE_FORMS  # noqa: PLC0415

    recording = stream.recording
    own = next(form for form in WIRE_FORMS if f"/v1/{form.path}" == PATHS[stream.form])
    upstream = SimpleNamespace(
        dialect="anthropic" if recording.api == "messages" else "openai", refused_parameters=frozenset()
    )
    route: Any = SimpleNamespace(upstream=upstream, modality=MODALITIES[recording.api], thinking="")
    plain = {"stream": True, **PLAIN[stream.form], "model": "bench/test/recorded"}
    recorded = {**plain, **recording.request, "model": plain["model"]} if stream.form == recording.api else plain
    try:
        call = own.call(dict(recorded), {})
    except (ApiError, ValidationError):
        call = replace(own.call(plain, {}), choices=recorded.get("n") or 1)
    form = own.over(route)
    dialect = import_string(settings.DIALECTS[upstream.dialect])()
    upstream_call = form.upstream_call(call, route)

    def play() -> int:
        sent = 0
        normaliser = form.normaliser(
            id="gen-1", created=1_780_000_000, model="bench/test/1/FRPAR", choices=call.choices
        )
        framing = form.framing(normaliser, call)
        played: Any = RecordedCall(stream.blocks)
        reader = StreamReader(played, dialect.decoder(upstream_call), normaliser, lambda _usage, _bytes: False)
        while reader.ending is None:
            try:
                reader.advance()
            except UpstreamFault:  # some were recorded because they break
                break
            sent += len(b"".join(framing.frames(reader.take())))
        return sent + len(b"".join(framing.frames(reader.take_finishes())))

    return play


def play_all(patterns: list[str]) -> None:
    """Plays every stream, once to warm up and once, when its input says so, between two marks each."""
    import django  # noqa: PLC0415

    os.environ["DJANGO_SETTINGS_MODULE"] = "gateway.settings"
    django.setup()
    players = [player(stream) for stream in chosen(patterns)]
    played = [number for number, play in enumerate(players) if play()]  # leaves out streams that no API can express
    gc.collect()
    gc.disable()
    print(json.dumps(played), flush=True)
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        """Wakes up again and again: only then is valgrind's control program obeyed."""
    for number in played:
        os.getppid()
        players[number]()
    os.getppid()


def count(patterns: list[str], folder: Path) -> dict[int, int]:
    """Returns the instructions of the chosen streams, by their number, in a process under callgrind."""
    callgrind = Callgrind(folder, f"--dump-before={MARK}")
    command = callgrind.command([sys.executable, "-m", "bench.events", PLAY, *patterns])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as playing:
        assert playing.stdout is not None
        assert playing.stdin is not None
        played = json.loads(playing.stdout.readline() or "null")
        if played is None:
            raise CallgrindError("the streams could not be played")
        callgrind.begin(playing.pid)
        playing.communicate("go\n")
    dumps = [profile for profile in callgrind.profiles(playing.pid) if profile.suffix != f".{playing.pid}"]
    ordered = sorted(dumps, key=lambda profile: int(profile.suffix[1:]))
    return dict(zip(played, map(total_of, ordered[1:]), strict=True))


def report(streams: list[RecordedStream], totals: Mapping[int, int], most: float | None) -> int:
    """Prints what an event takes, by provider and in the dearest streams, and returns the exit status."""
    of_provider: dict[str, list[tuple[RecordedStream, float]]] = {}
    for number, total in totals.items():
        stream = streams[number]
        of_provider.setdefault(stream.name, []).append((stream, total / len(stream.blocks) / 1000))
    print(f"{'thousand instructions of an event':<40}{'streams':>8}{'events':>8}{'mean':>8}{'dearest':>9}")
    for name, found in sorted(of_provider.items(), key=lambda item: -max(cost for _, cost in item[1])):
        events = sum(len(stream.blocks) for stream, _ in found)
        mean = sum(cost * len(stream.blocks) for stream, cost in found) / events
        dearest, cost = max(found, key=lambda one: one[1])
        print(f"{name:<40}{len(found):8}{events:8,}{mean:8.1f}{cost:9.1f}  {dearest.recording.id}")
    above = sum(cost > (most or ACCEPTED) for found in of_provider.values() for _, cost in found)
    print(f"\n{above} of {len(totals)} streams take more than {most or ACCEPTED:g} thousand an event")
    return int(most is not None and above > 0)


def main(arguments: list[str]) -> int:
    """Chooses, measures, prints, and returns the exit status."""
    if arguments[:1] == [PLAY]:
        play_all(arguments[1:])
        return 0
    parser = argparse.ArgumentParser(prog="python -m bench.events", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=float, help="thousand instructions")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    options = parser.parse_args(arguments)
    streams = chosen(options.patterns)
    if not streams:
        print(
            f"Nothing is measured: no such recordings in {recordings.BESIDE} beside the checkout, or where "
            f"{recordings.VARIABLE} says."
        )
        return 0
    plugin.prepare("sqlite")
    return report(streams, count(options.patterns, plugin.scratch() / "callgrind"), options.most)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
