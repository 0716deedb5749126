"""The deliberate breaks of `mutants.yaml`: which words of the source become which, and the test that must notice."""

from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from tests.servers.process import ROOT

LIST = Path(__file__).with_name("mutants.yaml")


@dataclass(frozen=True)
class Mutant:
    """One break of the file at `path`, in the area that it is listed under. `test` is a node id of pytest's.

    `soak` says that two minutes of soak notice it as well.
    """

    area: str
    path: str
    text: str
    becomes: str
    test: str
    database: str = "postgres"
    soak: bool = False

    @property
    def change(self) -> str:
        """The break in one line."""
        return f"{self.path}: {self.text.strip()!r} -> {self.becomes.strip()!r}"

    def applied(self, tree: Path) -> str:
        """The content of its file in a tree, broken. Raises ValueError where the words do not occur exactly once."""
        source = (tree / self.path).read_text()
        if source.count(self.text) != 1:
            raise ValueError(f"{self.path} has {source.count(self.text)} of {self.text!r}")
        return source.replace(self.text, self.becomes)


def mutants() -> list[Mutant]:
    """All of them, in the order of the list."""
    areas = YAML(typ="safe").load(LIST)
    return [Mutant(area, **fields) for area, listed in areas.items() for fields in listed]


def function_of(test: str) -> tuple[Path, str]:
    """The file and the function that a node id names."""
    path, _, function = test.partition("::")
    return ROOT / path, function
