"""Reading catalogue files: YAML 1.2 (core schema) or JSON, with exact decimals and without duplicate keys.

PyYAML speaks YAML 1.1, where `NO` is false, `010` is 8 and 0.1 is a binary float. Here `NO` is Norway, `010` is ten,
`0.1` is a Decimal, a date is a string until a field asks for one, and `<<` is an ordinary key.
"""

import json
import re
from collections.abc import Hashable
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import yaml

from .faults import BadCatalogue, Fault, Where

_NULL, _BOOL, _INT, _FLOAT = (f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float"))


class _CoreLoader(yaml.CSafeLoader):
    """libyaml's parser with the scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # none of 1.1's

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    problem="a key is a list or a table", problem_mark=node.start_mark
                )
            if key in mapping:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} is there twice", problem_mark=key_node.start_mark
                )
            mapping[key] = self.construct_object(value_node, deep=deep)
        return mapping

    def construct_bool(self, node: yaml.ScalarNode) -> bool:
        return str(node.value).lower() == "true"

    def construct_int(self, node: yaml.ScalarNode) -> int:
        text = str(node.value)
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))

    def construct_decimal(self, node: yaml.ScalarNode) -> Decimal:
        text = str(node.value)
        return Decimal(text.replace(".inf", "inf").replace(".nan", "nan") if text[-1:].isalpha() else text)


for _tag, _pattern, _first in (
    (_NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (_BOOL, r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (_INT, r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        _FLOAT,
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _CoreLoader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)
_CoreLoader.add_constructor(_BOOL, _CoreLoader.construct_bool)
_CoreLoader.add_constructor(_INT, _CoreLoader.construct_int)
_CoreLoader.add_constructor(_FLOAT, _CoreLoader.construct_decimal)


def read(path: Path) -> dict[Any, Any]:
    """The top-level table of a file. Raises BadCatalogue where there is none to be had."""
    kind = "JSON" if path.suffix.lower() == ".json" else "YAML"
    try:
        content = path.read_bytes()
        document = _parse_json(content) if kind == "JSON" else yaml.load(content, _CoreLoader)  # noqa: S506  # it is safe
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _fault(path, f"is not YAML: {place}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, ArithmeticError, RecursionError) as error:
        raise _fault(path, f"is not {kind}: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise _fault(
            path, "must be a table with providers, models, …: " + ("it is empty" if document is None else "it is none")
        )
    return document


def _fault(path: Path, reason: str) -> BadCatalogue:
    return BadCatalogue([Fault(Where(str(path)), "", reason)])


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
