"""`make replay` plays the recorded answers of real providers through a gateway, and compares what clients receive.

Each recording is requested in several ways (`replay_requests`); the expected answer is derived from the recording
(`truth`). The exit status is 1 if an answer differs from its recording. Without recordings it prints one line and exits
with 0.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable

from tests import plugin
from tests.replay import recordings
from tests.replay.judge import VERDICTS, Outcome
from tests.replay.recordings import Recording
from tests.replay.running import replayed
from tests.replay.upstream import PlayedProvider
from tests.servers.databases import MigratedDatabases


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--workers", type=int, default=1, help="number of the gateway's workers")
    parser.add_argument("--seed", type=int, default=24, help="seed for the places where bodies are cut")
    parser.add_argument("--only", default="", help="play only recordings whose id contains this regular expression")
    options = parser.parse_args(arguments)
    files = recordings.files()
    if not files:
        where = f"{recordings.BESIDE} next to the checkout, or in the folder that {recordings.VARIABLE} names"
        sys.stdout.write(f"Nothing is replayed: there are no recordings in {where}.\n")
        return 0
    chosen = [recording for recording in recordings.read(files) if re.search(options.only, recording.id)]
    plugin.prepare(options.database)
    began = time.monotonic()
    with PlayedProvider(chosen, options.seed) as provider:
        outcomes = replayed(chosen, MigratedDatabases(plugin.databases()), provider, workers=options.workers)
    sys.stdout.write(report(chosen, outcomes))
    failed = sum(outcome.verdict == "failed" for outcome in outcomes)
    workers = "1 worker" if options.workers == 1 else f"{options.workers} workers"
    took = f"{time.monotonic() - began:.0f} s on {options.database} with {workers}"
    sys.stdout.write(f"\n{len(chosen)} recordings, {len(outcomes)} requests, {failed} failed; {took}\n")
    return int(failed > 0)


def report(chosen: Iterable[Recording], outcomes: list[Outcome]) -> str:
    """Returns the tables and the list of failures, in Markdown."""
    sizes: dict[tuple[str, ...], list[int]] = {}
    for recording in chosen:
        size = sizes.setdefault((recording.provider, recording.api), [0, 0, 0])
        size[0] += 1
        size[1] += recording.streamed
        size[2] += recording.is_error
    providers: dict[tuple[str, ...], Counter[str]] = {}
    ways: dict[tuple[str, ...], Counter[str]] = {}
    for outcome in outcomes:
        recording = outcome.request.recording
        of_provider = (recording.provider, recording.api)
        key = (*of_provider, "{} ({}, {})".format(*sizes[of_provider]))
        providers.setdefault(key, Counter())[outcome.verdict] += 1
        key = (recording.api, outcome.request.way, "streamed" if recording.streamed else "whole")
        ways.setdefault(key, Counter())[outcome.verdict] += 1
    by_provider = _table(("provider", "API", "exchanges (streamed, errors)"), providers)
    by_way = _table(("recorded API", "way", "recorded"), ways)
    failures = "".join(
        f"- `{o.request.recording.id}` {o.request.way} ({o.request.recording.source}): {'; '.join(o.reasons)}\n"
        for o in outcomes
        if o.verdict == "failed"
    )
    return f"{by_provider}\n{by_way}\n{failures}"


def _table(heads: tuple[str, ...], rows: dict[tuple[str, ...], Counter[str]]) -> str:
    lines = [(*heads, "requests", *VERDICTS), tuple("---" for _ in (*heads, "requests", *VERDICTS))]
    total = Counter[str]()
    for key, counts in sorted(rows.items(), key=lambda row: -sum(row[1].values())):
        lines.append((*key, str(sum(counts.values())), *(str(counts[verdict]) for verdict in VERDICTS)))
        total += counts
    lines.append(("**all**", *("" for _ in heads[1:]), str(sum(total.values())), *(str(total[v]) for v in VERDICTS)))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
