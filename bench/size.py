"""`python -m bench.size`: lines of code by app, and the rooms (folders) and modules that a request runs through.

A line of code is one with a token on it that is neither comment nor docstring. Every Python package of the checkout is
counted, without migrations (written by Django), tests and this package.
"""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

from bench.kinds import BURST_STREAM
from bench.trace import trace
from tests import plugin
from tests.servers.databases import MigratedDatabases
from tests.servers.process import ROOT

NOT_PRODUCT = {"bench", "tests"}
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def main() -> None:
    """Prints them."""
    lines = lines_by_app()
    print("lines of code, without blank lines, comments, docstrings, migrations and tests")
    for app, count in lines.items():
        print(f"  {app:<12}{count:8,}")
    print(f"  {'together':<12}{lines.total():8,}\n")
    plugin.prepare("postgres")
    traced = trace(MigratedDatabases(plugin.databases()), plugin.scratch())
    print(f"{'own code that one request runs through':<44}{'rooms':>10}{'modules':>10}{'functions':>10}{'calls':>10}")
    for name, ran in traced.items():
        print(f"  {name:<42}{len(ran.rooms):10}{len(ran.modules):10}{len(ran.calls):10}{sum(ran.calls.values()):10}")
    print(f"\nrooms and modules of a {BURST_STREAM.name}")
    for room, modules in traced[BURST_STREAM.name].rooms.items():
        print(f"  {room:<28}{', '.join(modules)}")


def lines_by_app() -> Counter[str]:
    """Lines of code of every package at the top of the checkout that belongs to the product, simulator and demo too."""
    packages = sorted(found.parent.name for found in ROOT.glob("*/__init__.py"))
    return Counter({app: _lines_in(ROOT / app) for app in packages if app not in NOT_PRODUCT})


def _lines_in(package: Path) -> int:
    modules = [module for module in package.rglob("*.py") if "migrations" not in module.parts]
    return sum(lines_of_code(module.read_text()) for module in modules)


def lines_of_code(source: str) -> int:
    """Lines that hold code: a string of several lines is so many, unless it is a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(source))


def _docstring_lines(source: str) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) is not None and first is not None:
                lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


if __name__ == "__main__":
    main()
