"""`python -m bench.gate [--update] [ROW…]` fails if a request takes more instructions than its budget allows.

The budget, in instructions of a pass-through, is bench/budget.json; `--update` writes the measured values there. ROWs
are kinds of requests by their names, such as "burst, tool calls"; by default all are measured. Rows that grew are
measured again, on new servers: disturbances on a machine only ever add to a request.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.rig.callgrind import CallgrindError
from bench.rig.kinds import KINDS, Kind
from bench.rig.report import COMPARED_HEAD, NAME_WIDTH, Compared
from bench.tables import instructions
from tests import plugin
from tests.servers.databases import MigratedDatabases
from tests.servers.postgres import PrivatePostgres

BUDGET = Path(__file__).with_name("budget.json")
TOLERANCE = 0.05
TIMES = 3  # how often a row may be measured
UPDATE = "make bench-gate ARGS=--update"


def main(arguments: Sequence[str]) -> int:
    """Measures, prints, and returns the exit status."""
    known = {kind.name: kind for kind in KINDS}
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    options = parser.parse_args(arguments)
    if unknown := set(options.rows) - set(known):
        parser.error(f"there is no row {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    kinds = [known[name] for name in options.rows] or KINDS
    budget = json.loads(BUDGET.read_text())
    wanted = {name: most for name, most in budget.items() if not options.rows or name in options.rows}
    plugin.prepare("sqlite")  # a clean environment and a scratch folder; the database is not SQLite
    postgres = PrivatePostgres()

    def measure(kinds: Sequence[Kind], number: int) -> list[Compared]:
        folder = plugin.scratch() / f"round {number}"
        return instructions.measure(MigratedDatabases(postgres), folder, kinds).rows

    try:
        postgres.start()
        measured = measure(kinds, 0) if options.update else least(measure, kinds, wanted)
    except CallgrindError as error:
        sys.exit(str(error))
    finally:
        postgres.close()
    lines, passed = verdict(measured, wanted)
    print("\n".join(lines))
    if options.update:
        budget |= {row.name: round(row.ratio, 2) for row in measured}
        BUDGET.write_text(json.dumps({name: budget[name] for name in known if name in budget}, indent=4) + "\n")
        print(f"\nwritten to {BUDGET}")
        return 0
    return 0 if passed else 1


def least(
    measure: Callable[[Sequence[Kind], int], list[Compared]], kinds: Sequence[Kind], budget: Mapping[str, float]
) -> list[Compared]:
    """Measures the rows, those over their budgets up to TIMES times; the least of each side counts."""
    rows = {row.name: row for row in measure(kinds, 0)}
    for number in range(1, TIMES):
        grown = [kind for kind in kinds if is_over(rows[kind.name], budget)]
        if not grown:
            break
        for again in measure(grown, number):
            row = rows[again.name]
            print(f"measured again: {again.line}, {row.ratio:.2f} before")
            gateway, pass_through = min(row.gateway, again.gateway), min(row.pass_through, again.pass_through)
            rows[row.name] = Compared(row.name, gateway, pass_through)
    return list(rows.values())


def is_over(row: Compared, budget: Mapping[str, float]) -> bool:
    """Tells whether the row has a budget and exceeds it by more than the tolerance."""
    return row.name in budget and row.ratio > budget[row.name] * (1 + TOLERANCE)


def verdict(measured: Sequence[Compared], budget: Mapping[str, float]) -> tuple[list[str], bool]:
    """Returns the table with advice, and whether every ratio is within its budget."""
    lines = [f"{COMPARED_HEAD}{'budget':>10}"]
    grown, fallen = [], []
    for row in measured:
        allowed = budget.get(row.name)
        if allowed is None:
            lines.append(f"{row.line}{'-':>10}")
            continue
        note = ""
        if is_over(row, budget):
            grown.append(row.name)
            note = "  GREW"
        elif row.ratio < allowed * (1 - TOLERANCE):
            fallen.append(row.name)
            note = "  fell"
        lines.append(f"{row.line}{allowed:10.2f}{note}")
    missing = sorted({row.name for row in measured} ^ set(budget))
    lines += [f"{name:<{NAME_WIDTH}}is measured or budgeted, not both: {UPDATE}" for name in missing]
    if grown:
        lines += [
            "",
            f"More than {TOLERANCE:.0%} over the budget of instructions: {', '.join(grown)}.",
            "Make it cheaper. Where the growth is worth its price, say so in the commit that raises the budget:",
            UPDATE,
        ]
    if fallen:
        lines += ["", f"Cheaper than budgeted. So that it stays so: {UPDATE}"]
    return lines, not grown and not missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
