"""The source tree keeps its promises. Import layers are checked by `make check` (import-linter)."""

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp

from bench.size import lines_of_code
from tests.servers.process import ROOT

PACKAGES = (
    "gateway",
    "accounts",
    "catalogue",
    "billing",
    "aliases",
    "inference",
    "dashboard",
    "operations",
    "proof",
    "reference",
    "simulator",
    "demo",
)
WITH_ROOMS = ("gateway", "catalogue", "billing")
OF_DJANGO = ("management", "migrations", "models", "templatetags")


def test_every_setting_is_documented() -> None:
    settings = set(re.findall(r"\bGATEWAY_[A-Z_]+\b", (ROOT / "gateway" / "settings.py").read_text()))
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    documented = set(re.findall(r"\bGATEWAY_[A-Z_]+\b", "\n".join(path.read_text() for path in documents)))
    assert settings - documented == set()


def test_the_rooms_are_drawn_as_they_import_each_other() -> None:
    drawn = re.findall(r"^ +([\w.]+) --> ([\w.]+)$", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    graph = grimp.build_graph(*WITH_ROOMS, cache_dir=None)
    imported = {
        (_room(importer), _room(found))
        for importer in graph.modules
        for found in graph.find_modules_directly_imported_by(importer)
    }
    between = {(above, below) for above, below in imported if above and below and above != below}
    assert {*drawn} == {(above, below) for above, below in between if above.split(".")[0] == below.split(".")[0]}
    assert len(drawn) == len({*drawn})


def test_the_fast_path_knows_nothing_of_what_is_served() -> None:
    words = re.compile(
        r"\b(chat|completions?|wallets?|ledger|billing|alias(es)?|prompts?|tokens?|dialects?)\b", re.IGNORECASE
    )
    said = {path.name: words.findall(path.read_text()) for path in (ROOT / "gateway" / "fastpath").glob("*.py")}
    assert {name: found for name, found in said.items() if found} == {}


def test_one_function_reads_the_switch_of_the_fast_path() -> None:
    named = {str(path.relative_to(ROOT)) for path in modules() if "GATEWAY_FASTPATH" in path.read_text()}
    assert named == {"gateway/settings.py", "gateway/fastpath/__init__.py"}


def _room(module: str) -> str | None:
    """Returns the folder of an app that contains the module.

    It is None if the module is directly in the app, or in a folder that Django prescribes.
    """
    app, *names = module.split(".")
    has_room = bool(names) and (ROOT / app / names[0]).is_dir() and names[0] not in OF_DJANGO
    return f"{app}.{names[0]}" if has_room else None


def test_a_line_of_code_is_neither_blank_nor_comment_nor_docstring() -> None:
    source = '''"""A module."""

import os  # counted


class Thing:
    """Of two
    lines."""

    # a comment
    query = """
    SELECT 1
    """
'''
    assert lines_of_code(source) == 5


def test_the_development_lock_contains_the_running_lock() -> None:
    """`make run` after `make test` relies on this."""
    running, traces, development = (pins(f"requirements{kind}.txt") for kind in ("", "-traces", "-dev"))
    assert running - traces == set()
    assert traces - development == set()


def test_the_product_imports_nothing_that_is_installed_for_development_alone() -> None:
    """Every distribution that it imports is in the lock file of `make run`, or in the one for traces."""
    locked = {_normal(pin.partition("==")[0]) for pin in pins("requirements-traces.txt")}
    behind = packages_distributions()
    imported = {name.partition(".")[0] for path in modules() for name in _imports(path)}
    foreign = imported - sys.stdlib_module_names - {*PACKAGES}
    assert {name for name in foreign if locked.isdisjoint(map(_normal, behind[name]))} == set()


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (path for path in (ROOT / package).rglob("*.py") if "migrations" not in path.parts)


def pins(lock: str) -> set[str]:
    return set(re.findall(r"^[\w.\[\]-]+==[\w.+!]+", (ROOT / lock).read_text(), flags=re.MULTILINE))
