"""Reads `mutants.yaml`, the list of deliberate breaks: the words to replace, and the test that must notice."""

from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from tests.servers.process import ROOT

LIST = Path(__file__).with_name("mutants.yaml")


@dataclass(frozen=True)
class Mutant:
    """Holds one break of the file at `path`, in the area that it is listed under. `test` is pytest's node id.

    If `soak` is true, two minutes of soak must notice it as well.
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
        """Describes the break in one line."""
        return f"{self.path}: {self.text.strip()!r} -> {self.becomes.strip()!r}"

    def applied(self, tree: Path) -> str:
        """Returns the file's broken content. Raises ValueError if the words do not occur exactly once."""
        source = (tree / self.path).read_text()
        if source.count(self.text) != 1:
            raise ValueError(f"{self.path} contains {self.text!r} {source.count(self.text)} times")
        return source.replace(self.text, self.becomes)


def mutants() -> list[Mutant]:
    """Returns all mutants, in the order of the list."""
    areas = YAML(typ="safe").load(LIST)
    return [Mutant(area, **fields) for area, listed in areas.items() for fields in listed]


def function_of(test: str) -> tuple[Path, str]:
    """Returns the file and the function that a node id names."""
    path, _, function = test.partition("::")
    return ROOT / path, function
