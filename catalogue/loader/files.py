"""Reads catalogue files: YAML 1.2 or JSON, with exact decimals."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode

DATA = Path(__file__).resolve().parent.parent / "data"  # the shipped catalogue
_MOST_SHOWN = 20


class CatalogueError(Exception):
    """The catalogue cannot be seeded; nothing was written. The message has a line for each reason."""


class BadCatalogue(CatalogueError):
    """The files have faults. Each is a line with file, entry, field and reason."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        more = [f"… and {len(faults) - _MOST_SHOWN} more"] if len(faults) > _MOST_SHOWN else []
        super().__init__("\n".join([*faults[:_MOST_SHOWN], *more]))


class _Constructor(SafeConstructor):
    def construct_decimal(self, node: ScalarNode) -> Decimal:
        return Decimal(str(node.value).lower().replace(".inf", "inf").replace(".nan", "nan"))

    def flatten_mapping(self, node: MappingNode) -> None:
        """Does nothing: YAML's merge keys are not supported."""

    def check_mapping_key(self, node: Any, key_node: Any, mapping: Any, key: Any, value: Any) -> bool:
        """Raises an error for a duplicate key. The library's own would quote both values, which may be whole tables."""
        if key in mapping:
            raise ConstructorError(problem=f"the key {key!r} is there twice", problem_mark=key_node.start_mark)
        return True


for _kind, _construct in (
    ("float", _Constructor.construct_decimal),
    ("timestamp", _Constructor.construct_yaml_str),
    ("merge", _Constructor.construct_yaml_str),
):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_kind}", _construct)


def read(path: Path) -> dict[Any, Any]:
    """Returns the top-level table of a file. Raises BadCatalogue."""
    kind = "JSON" if path.suffix.lower() == ".json" else "YAML"
    try:
        content = path.read_bytes()
        if kind == "JSON":
            numbers: dict[str, Any] = {"parse_float": Decimal, "parse_constant": _refuse_constant}
            document = json.loads(content, **numbers, object_pairs_hook=_table_without_duplicates)
        else:
            parser = YAML(typ="safe")
            parser.Constructor = _Constructor
            document = parser.load(content)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        reason = f"is not YAML: {place}{error.problem or error.context}"
    except (YAMLError, ValueError, ArithmeticError, RecursionError) as error:
        reason = f"is not {kind}: {' '.join(str(error).split())}"
    else:
        if isinstance(document, dict):
            return document
        reason = f"must be a table with providers, models, …: it is {'empty' if document is None else 'not a table'}"
    raise BadCatalogue([f"{path}: {reason}"])


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _table_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is there twice")
    return table
