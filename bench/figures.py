"""`python -m bench.figures` measures the figures of README and docs again, and fails if a document differs.

Each figure has a command, which is given next to it in its document; together they take four minutes. Instructions and
bytes may differ a little from machine to machine; times are not compared.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from tests.servers.process import ROOT

MODULES = {  # by the command that documents name
    "bench.shipped": ("bench.shipped",),
    "bench.arithmetic": ("bench.arithmetic",),
    "bench.capacity": ("bench.capacity",),
    "bench.connections": ("bench.connections",),
    "bench.storage": ("bench.storage",),
    "make size": ("bench.size",),
    "make bench-gate": (
        "bench.gate",
        "whole answer",
        "whole answer, at most 64 tokens",
        "burst of 100 chunks",
        "paced stream of 100 chunks",
    ),
    "make failover-bench": ("bench.failover",),
}
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


class Figure(NamedTuple):
    """Holds a pattern for numbers in a document, and one for the numbers in a command's output that they must equal."""

    document: str
    name: str
    says: str  # finds them in the document: the groups, or the whole match without groups
    command: str
    prints: str  # finds them in the output
    tolerance: float = 0.0  # as a share of the measured value


class NotCompared(NamedTuple):
    """Holds figures that are not measured again, by words next to them."""

    document: str
    words: str
    why: str


CATALOGUE = {
    "providers": r"`catalogue/data/`: (\d+) providers",
    "offers": r"(\d+) offers of",
    "models": r"offers of (\d+) models",
    "routes": r"models, (\d+) routes",
    "priced": r"(\d+) of them priced",
    "with energy figures": r"for (\d+) models, computed",
    "without a public size": r"names the (\d+) without a public size",
    "places": r"(\d+) places \(UN/LOCODE\)",
    "countries": r"in (\d+) countries and the world",
}
ARITHMETIC = {
    "whole answers a second and core": r"ms: (\d+) a second and core at the very most",
    "streams a second and core": r"ms: (\d+) streams a second and core",
    "settlements with their look-ups a second and core": r"([\d,]+) requests a second and core at the very most with",
    "settlements of one account a second, each by itself": r"(\d+) a second at 1 ms",
    "the same, 32 together": r"([\d,]+) if 32 come together",
    "whole answers a second of six cores": r"6 x \d+ = ([\d,]+) ordinary",
    "cores of PostgreSQL's for them": r"/ 900 = ([\d.]+) cores",
    "streams a second of six cores": r"6 x \d+ = ([\d,]+) a second",
    "streams open at a time": r"so that ([\d,]+) are open at a time",
    "requests a second of PostgreSQL's eight cores": r"µs = ([\d,]+) a second",
    "core-hours of a million whole answers": r"([\d.]+) core-hours \|\n\| gateway, streams",
    "core-hours of a million streams": r"([\d.]+) core-hours \|\n\| PostgreSQL",
    "core-hours of PostgreSQL for a million": r"([\d.]+) core-hours \|\n\| storage",
    "GB of a million requests": r"([\d.]+) GB for as long as the ledger lives",
    "GB of log of a million requests": r"([\d.]+) GB, for as long as the archive is kept",
    "a million whole answers cost": r"= ([\d.]+) for whole answers",
    "a million streams cost": r"= ([\d.]+) for streams",
    "and each month": r"for streams, and ([\d.]+) more each month",
}
FIGURES = (
    Figure("README.md", "providers", r"product has (\d+) providers", "bench.shipped", r"^providers (.*)"),
    *(Figure("docs/catalogue.md", name, says, "bench.shipped", rf"^{name} (.*)$") for name, says in CATALOGUE.items()),
    Figure(
        "docs/scaling.md",
        "instructions of a whole answer",
        r"([\d,]+) instructions for one of 100 chunks",
        "make bench-gate",
        r"^whole answer  +([\d,]+)",
        0.05,
    ),
    Figure(
        "docs/scaling.md",
        "instructions of one of 64 tokens",
        r"([\d,]+) instructions: the upstream does not stream",
        "make bench-gate",
        r"^whole answer, at most 64 tokens +([\d,]+)",
        0.05,
    ),
    Figure(
        "docs/scaling.md",
        "instructions of a stream",
        r"([\d,]+) instructions for 100 chunks that each come alone",
        "make bench-gate",
        r"^paced stream of 100 chunks +([\d,]+)",
        0.05,
    ),
    Figure(
        "docs/scaling.md",
        "bytes of records and ledger",
        r"([\d,]+) bytes of records and ledger and ([\d,]+) of their",
        "bench.storage",
        r"^together +(.*)$",
        0.05,
    ),
    Figure(
        "docs/scaling.md",
        "bytes of log",
        r"log \| ([\d,]+) bytes a request",
        "bench.storage",
        r"^bytes of write-ahead log a request +([\d,]+)",
        0.05,
    ),
    *(
        Figure("docs/scaling.md", name, says, "bench.arithmetic", rf"^{re.escape(name)} {{2,}}(.*)$", 0.03)
        for name, says in ARITHMETIC.items()
    ),
    Figure(
        "docs/scaling.md",
        "gateways on one PostgreSQL",
        r"^\| \d+ \| [\d,]+ \| [\d,]+ \| [\d,]+ \| [\d.,]+ ms \| .*$",
        "bench.capacity",
        r"^\| \d+ .*$",
    ),
    Figure(
        "docs/scaling.md",
        "connections to providers",
        r"^\| [\d,]+ \| [\d.]+ %, .*$",
        "bench.connections",
        r"^ +[\d,]+ +[\d.]+%, .*$",
    ),
    *(
        Figure(
            "docs/benchmarks.md",
            f"ratio of a {name}",
            rf"{words}([\d.]+)",
            "make bench-gate",
            rf"^{re.escape(name)}  +[\d,]+ +[\d,]+ +([\d.]+)",
            0.05,
        )
        for name, words in {
            "whole answer, at most 64 tokens": r"one of at most 64 tokens takes ",
            "whole answer": r"a whole answer takes ",
            "burst of 100 chunks": r"a burst ",
        }.items()
    ),
    *(
        Figure(
            "docs/benchmarks.md",
            f"FailoverBench, {way}",
            rf"^\| this gateway, {way} \(\S+\)( \| .*)$",
            "make failover-bench",
            rf"^{way}  (\d+ pass.*)$",
        )
        for way in ("pinned", "auto")
    ),
    *(
        Figure(
            "docs/benchmarks.md", f"lines of {app}", rf"^  {app}  +([\d,]+)$", "make size", rf"^  {app} +(.*)$", 0.05
        )
        for app in ("accounts", "aliases", "billing", "catalogue", "dashboard", "gateway", "inference", "together")
    ),
    *(
        Figure(
            "docs/benchmarks.md",
            f"rooms, modules, functions and calls of {name}",
            rf"^  {name}  +(\d+ +\d+ +\d+ +\d+)$",
            "make size",
            rf"^  {name}  +(\d+ +\d+ +\d+ +\d+)$",
            0.1,
        )
        for name in ("burst of 100 chunks", "whole answer, at most 64 tokens", "embedding")
    ),
)
NOT_COMPARED = (
    NotCompared("docs/scaling.md", "1.03 instructions a nanosecond", "a machine's speed on one day"),
    NotCompared("docs/scaling.md", "182 µs of the sessions' CPU", "time; bench.storage prints what it is here"),
    NotCompared("docs/scaling.md", "10 to 16 µs of execution", "time; bench.storage prints what it is here"),
    NotCompared("docs/scaling.md", "settled 745 a second", "time of a disk; make bench"),
    NotCompared("docs/scaling.md", "23 KB each", "make bench takes nine minutes"),
    NotCompared("docs/scaling.md", "320 connections with unexpected bytes", "bench.surplus depends on what comes when"),
    NotCompared("docs/growth.md", "165 ms for 100,000", "time, by hand"),
    NotCompared("docs/growth.md", "rolled up in 3 s", "time; make bench"),
    NotCompared("docs/growth.md", "0.62, 0.72 and 0.73", "time of a disk"),
    NotCompared("docs/growth.md", "57 ms for the swap", "time"),
    NotCompared("docs/operations.md", "6.6 % more instructions", "make bench takes nine minutes"),
    NotCompared("docs/operations.md", "18 s with two and 37 s with one", "time"),
    NotCompared("docs/operations.md", "take 0.1 s of CPU", "time, by hand"),
    NotCompared("docs/high-availability.md", "1,853 thousand instructions", "make bench takes nine minutes"),
    NotCompared("docs/high-availability.md", "1,544 answers of 1,783 requests", "make cluster-campaign, by chance"),
    NotCompared("docs/benchmarks.md", "2026-11-23 01:13 UTC, 2 cores", "a run of make bench, with its day"),
    NotCompared("docs/benchmarks.md", "seed 4711, 06:27 UTC", "make soak, by chance"),
)


def numbers(pattern: str, text: str) -> list[float]:
    """Returns the numbers in the groups of each match of the pattern, or in the whole match."""
    found = re.finditer(pattern, text, re.MULTILINE)
    parts = (part for one in found for part in (one.groups() or (one[0],)))
    return [float(number.replace(",", "")) for part in parts for number in NUMBER.findall(part)]


def is_within(says: Sequence[float], measured: Sequence[float], tolerance: float) -> bool:
    """Tells whether the numbers are as many as the measured ones and differ by no more than the tolerance."""
    if not says or len(says) != len(measured):
        return False
    return all(abs(one - other) <= tolerance * other for one, other in zip(says, measured, strict=True))


def compare() -> Iterator[tuple[Figure, list[float], list[float]]]:
    """Yields each figure, its document's numbers, and the numbers that its command prints now."""
    for figure in FIGURES:
        says = numbers(figure.says, (ROOT / figure.document).read_text())
        yield figure, says, numbers(figure.prints, _output(figure.command))


@cache
def _output(command: str) -> str:
    print(f"… {command}", file=sys.stderr, flush=True)
    words = [sys.executable, "-m", *MODULES[command]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{command} measured nothing:\n{done.stderr}")
    return done.stdout


def _shown(figures: Sequence[float]) -> str:
    shown = " ".join(f"{figure:,.10g}" for figure in figures[:4]) or "nothing"
    return f"{shown} …" if len(figures) > 4 else shown  # as many as fit


def main() -> int:
    """Prints a table; returns 1 if a figure differs."""
    differs = 0
    print(f"{'figure':<72}{'document':<28}{'says':<28}{'measured':<28}verdict")
    for figure, says, measured in compare():
        same = is_within(says, measured, figure.tolerance)
        differs += not same
        verdict = "same" if same else "DIFFERS"
        if same and figure.tolerance:
            verdict = f"within {figure.tolerance:.0%}"
        if not same and len(says) == len(measured):
            verdict += f" in {sum(one != other for one, other in zip(says, measured, strict=True))} numbers"
        print(f"{figure.name:<72}{figure.document:<28}{_shown(says):<28}{_shown(measured):<28}{verdict}")
    for one in NOT_COMPARED:
        print(f"{one.words:<72}{one.document:<28}not compared: {one.why}")
    return int(differs > 0)


if __name__ == "__main__":
    sys.exit(main())
