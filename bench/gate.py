"""`python -m bench.gate [--update] [ROW…]`: fails where a request takes more instructions than its budget allows.

The budget, in instructions of a pass-through, is bench/budget.json; `--update` writes there what was
measured. ROWs are kinds of requests by their names, such as "burst, tool calls"; without any, all are measured.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.rig.callgrind import CallgrindError
from bench.rig.kinds import KINDS
from bench.rig.report import COMPARED_HEAD, NAME_WIDTH, Compared
from bench.tables import instructions
from tests import plugin
from tests.servers.databases import MigratedDatabases
from tests.servers.postgres import PrivatePostgres

BUDGET = Path(__file__).with_name("budget.json")
TOLERANCE = 0.05
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
    plugin.prepare("sqlite")  # a clean environment and a scratch folder; the database is not SQLite
    postgres = PrivatePostgres()
    try:
        postgres.start()
        measured = instructions.measure(MigratedDatabases(postgres), plugin.scratch(), kinds).rows
    except CallgrindError as error:
        sys.exit(str(error))
    finally:
        postgres.close()
    budget = json.loads(BUDGET.read_text())
    wanted = {name: most for name, most in budget.items() if not options.rows or name in options.rows}
    lines, passed = verdict(measured, wanted)
    print("\n".join(lines))
    if options.update:
        budget |= {row.name: round(row.ratio, 2) for row in measured}
        BUDGET.write_text(json.dumps({name: budget[name] for name in known if name in budget}, indent=4) + "\n")
        print(f"\nwritten to {BUDGET}")
        return 0
    return 0 if passed else 1


def verdict(measured: Sequence[Compared], budget: Mapping[str, float]) -> tuple[list[str], bool]:
    """The table, what to do about it, and whether every ratio is within its budget."""
    lines = [f"{COMPARED_HEAD}{'budget':>10}"]
    grown, fallen = [], []
    for row in measured:
        allowed = budget.get(row.name)
        if allowed is None:
            lines.append(f"{row.line}{'-':>10}")
            continue
        note = ""
        if row.ratio > allowed * (1 + TOLERANCE):
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
