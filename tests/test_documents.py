"""Every link to the documents in docs/ leads somewhere, and their lists are complete."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from rest_framework import serializers

from catalogue.loader import shapes
from gateway import errors
from simulator.behaviour import WORDS
from tests.servers.process import ROOT

POINTER = re.compile(r"(?<![\w/])docs/[\w/-]+\.md(?:#[\w-]+)?")
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"```.*?```", re.DOTALL)
# These are documents outside the repository, and numbers of decisions, which no reader could look up.
ELSEWHERE = re.compile(
    r"\bdecisions? \d|wire-notes|\b(?:design|contract),? section|\.\./shared|\bspec\.md|\(spec[:,]|\bthe spec\b",
    re.IGNORECASE,
)
SUFFIXES = frozenset({".css", ".html", ".js", ".md", ".mjs", ".py", ".toml", ".yaml"})
# Files in `data` name documents of other repositories.
NOT_OURS = frozenset({".git", ".venv", "var", "vendor", "node_modules", "staticfiles", "data"})
SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:html|js|md|mjs|py|toml|yaml)")
MEMBER = re.compile(r"([A-Z]\w+)\.(\w+)(?:\(\))?")
# These are files that readers write themselves, and files of other projects.
OF_OTHERS = frozenset(
    {
        "compose.override.yaml",
        "ecologits/impacts/llm.py",
        "http/message.py",
        "http/wsgi.py",
        "my-providers.yaml",
        "results/full/SCORECARD.md",
    }
)
NAMED = re.compile(r"`([\w-]+)")
FOOTNOTE = re.compile(r"\[\^([\w-]+)\]")
SOURCE = re.compile(r"\[\^[\w-]+\]: <https://\S+>.*, read \d{4}-\d\d-\d\d\.")


@cache
def _texts() -> dict[Path, str]:
    """Returns every text of the repository except this one, by its path."""
    paths = (path for top in ROOT.iterdir() if top.name not in NOT_OURS for path in [top, *top.rglob("*")])
    texts = (path for path in paths if path.suffix in SUFFIXES and path.is_file() and path != Path(__file__))
    ours = (path for path in texts if NOT_OURS.isdisjoint(path.relative_to(ROOT).parts))
    return {path: path.read_text(encoding="utf-8") for path in ours}


def _documents() -> list[Path]:
    return [path for path in _texts() if path.suffix == ".md" and path.name != "CHANGELOG.md"]


@cache
def _anchors(document: Path) -> set[str]:
    """Returns the anchors that the document's headings get on the page that shows it."""
    headings = HEADING.findall(CODE.sub("", document.read_text(encoding="utf-8")))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def _is_there(pointer: str, directory: Path) -> bool:
    path, _, anchor = pointer.partition("#")
    document = (directory / path).resolve()
    return document.exists() and (not anchor or anchor in _anchors(document))


def _lines(pattern: re.Pattern[str]) -> Iterator[str]:
    for path, text in _texts().items():
        for number, line in enumerate(text.splitlines(), start=1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def _document(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def _named_in(name: str) -> set[str]:
    """Returns the first words of the document's code spans."""
    return set(NAMED.findall(CODE.sub("", _document(name))))


def test_pointers_to_documents_lead_somewhere() -> None:
    lost = [
        f"{path.relative_to(ROOT)}: {pointer}"
        for path, text in _texts().items()
        for pointer in POINTER.findall(text)
        if not _is_there(pointer, ROOT)
    ]
    assert lost == []


def test_links_of_documents_lead_somewhere() -> None:
    lost = [
        f"{path.relative_to(ROOT)}: {link}"
        for path, text in _texts().items()
        if path.suffix == ".md"
        for link in LINK.findall(text)
        if not (_is_there(link, path.parent) if not link.startswith("#") else link[1:] in _anchors(path))
    ]
    assert lost == []


def test_nothing_points_to_what_is_not_here() -> None:
    assert list(_lines(ELSEWHERE)) == []


def test_files_and_members_that_documents_name_exist() -> None:
    data = (ROOT / "catalogue" / "data").rglob("*.yaml")
    files = [path.relative_to(ROOT).as_posix() for path in (*_texts(), *data)]
    code = "\n".join(text for path, text in _texts().items() if path.suffix == ".py")
    classes = set(re.findall(r"^\s*class (\w+)", code, re.MULTILINE))
    lost = []
    for document in _documents():
        for span in SPAN.findall(CODE.sub("", _texts()[document])):
            of_class = MEMBER.fullmatch(span)
            is_file = FILE.fullmatch(span) is not None and span not in OF_OTHERS
            is_here = (ROOT / span).exists() or any(f"/{name}".endswith(f"/{span}") for name in files)
            if (is_file and not is_here) or (
                of_class and of_class[1] in classes and not re.search(rf"\b{of_class[2]}\b", code)
            ):
                lost.append(f"{document.relative_to(ROOT)}: {span}")
    assert lost == []


def test_the_api_lists_every_error_code() -> None:
    def codes(kind: type[errors.ApiError]) -> set[str]:
        return {kind.code or ""}.union(*map(codes, kind.__subclasses__()))

    assert codes(errors.ApiError) - _named_in("api.md") == set()


@pytest.mark.parametrize("shape", [shapes.Provider, shapes.Model, shapes.RegionOfModel, shapes.Pricing])
def test_the_contract_lists_every_key_of_a_catalogue_file(shape: type[serializers.Serializer[None]]) -> None:
    assert set(shape().fields) - _named_in("contract.md") == set()


def test_the_contract_lists_every_word_of_the_simulator() -> None:
    assert WORDS.keys() - _named_in("contract.md") == set()


@pytest.mark.parametrize("package", ["ai_sdk", "claude_code", "codex", "generated_clients", "node"])
def test_the_page_of_clients_names_the_versions_that_tests_run(package: str) -> None:
    described = json.loads((ROOT / "tests" / package / "package.json").read_text())["dependencies"]
    rows = [line for line in _document("clients.md").partition("By hand")[0].splitlines() if line.startswith("|")]
    assert [version for version in described.values() if not any(version in row for row in rows)] == []


def test_the_contract_lists_every_command() -> None:
    commands = {path.stem for path in _texts() if path.parent.name == "commands" and path.stem != "__init__"}
    assert commands - {"run_demo"} - _named_in("contract.md") == set()


def test_every_source_of_the_comparison_is_used_and_has_an_address_and_a_date() -> None:
    lines = _document("comparison.md").splitlines()
    sources = [line for line in lines if line.startswith("[^")]
    cited = FOOTNOTE.findall("\n".join(line for line in lines if line not in sources))
    assert [line for line in sources if not SOURCE.match(line)] == []
    assert {FOOTNOTE.findall(line)[0] for line in sources} == set(cited)


def test_no_text_has_marks_of_a_merge() -> None:
    assert not [*_lines(re.compile(r"^(?:<{7} \S|>{7} \S|={7}$)"))]
