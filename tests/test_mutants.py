"""The list of `make mutants` fits the source: a mutant that changes nothing would never be noticed."""

import re
from collections import Counter

from tests.mutants.__main__ import SOAK
from tests.mutants.listed import function_of, mutants
from tests.servers.process import ROOT

AREAS = {
    "money",
    "settlement",
    "spool",
    "locks",
    "checkpoints",
    "streams",
    "upstreams",
    "shapes",
    "admission",
    "isolation",
    "pins",
    "limits",
    "freshness",
    "connections",
    "policies",
    "alerts",
    "idempotency",
    "fallbacks",
    "management",
    "proof",
}


def test_every_mutant_occurs_exactly_once_and_names_a_test_that_exists() -> None:
    for mutant in mutants():
        assert mutant.applied(ROOT) != (ROOT / mutant.path).read_text()
        path, function = function_of(mutant.test)
        assert re.search(rf"^def {function}\(", path.read_text(), re.MULTILINE), mutant.test
        assert mutant.database in ("sqlite", "postgres")


def test_the_soak_is_a_test_that_exists_and_has_mutants_to_notice() -> None:
    path, function = function_of(SOAK)
    assert re.search(rf"^def {function}\(", path.read_text(), re.MULTILINE)
    assert {mutant.area for mutant in mutants() if mutant.soak} >= {"money", "settlement", "streams"}


def test_every_area_has_its_mutants_and_none_is_listed_twice() -> None:
    listed = mutants()
    assert len(listed) >= 60
    assert {mutant.area for mutant in listed} == AREAS
    assert max(Counter((mutant.path, mutant.text, mutant.becomes) for mutant in listed).values()) == 1
