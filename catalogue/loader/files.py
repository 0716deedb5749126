"""Reading catalogue files: YAML 1.2 or JSON, with exact decimals and without duplicate keys.

`NO` is Norway, `010` is ten, `0.1` is a Decimal, a date is a string until a field asks for one, and `<<` is an ordinary
key.
"""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode

from .faults import BadCatalogue, Fault, Where


class _Constructor(SafeConstructor):
    def construct_decimal(self, node: ScalarNode) -> Decimal:
        return Decimal(str(node.value).lower().replace(".inf", "inf").replace(".nan", "nan"))

    def flatten_mapping(self, node: MappingNode) -> None:
        """Merges nothing."""

    def check_mapping_key(self, node: Any, key_node: Any, mapping: Any, key: Any, value: Any) -> bool:
        """The library's own text quotes both values, which may be whole tables."""
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
    """The top-level table of a file. Raises BadCatalogue where there is none to be had."""
    kind = "JSON" if path.suffix.lower() == ".json" else "YAML"
    try:
        content = path.read_bytes()
        document = _parse_json(content) if kind == "JSON" else _parse_yaml(content)
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _fault(path, f"is not YAML: {place}{error.problem or error.context}") from None
    except (YAMLError, ValueError, ArithmeticError, RecursionError) as error:
        raise _fault(path, f"is not {kind}: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise _fault(
            path, "must be a table with providers, models, …: " + ("it is empty" if document is None else "it is none")
        )
    return document


def _fault(path: Path, reason: str) -> BadCatalogue:
    return BadCatalogue([Fault(Where(str(path)), "", reason)])


def _parse_yaml(content: bytes) -> Any:
    parser = YAML(typ="safe")
    parser.Constructor = _Constructor
    return parser.load(content)


def _parse_json(content: bytes) -> Any:
    return json.loads(
        content, parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_table_without_duplicates
    )


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _table_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is there twice")
    return table
