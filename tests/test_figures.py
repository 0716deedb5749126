"""The table of `make figures` matches the documents. Whether the figures are right is checked by running it."""

import pytest

from bench.figures import FIGURES, MODULES, NOT_COMPARED, Figure, NotCompared, is_within, numbers
from tests.servers.process import ROOT


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure.document}: {figure.name}")
def test_a_figure_stands_in_its_document_with_its_command(figure: Figure) -> None:
    text = (ROOT / figure.document).read_text()
    assert numbers(figure.says, text)
    assert figure.command in text
    assert figure.command in MODULES


@pytest.mark.parametrize("one", NOT_COMPARED, ids=lambda one: f"{one.document}: {one.words}")
def test_a_figure_that_is_not_compared_stands_in_its_document(one: NotCompared) -> None:
    assert one.words in (ROOT / one.document).read_text()


@pytest.mark.parametrize(
    ("says", "measured", "same"),
    [
        ([100.0], [104.0], True),
        ([100.0], [106.0], False),
        ([100.0, 1.0], [100.0], False),
        ([], [], False),
        ([0.0], [0.0], True),
    ],
)
def test_a_figure_may_differ_by_its_tolerance(says: list[float], measured: list[float], same: bool) -> None:
    assert is_within(says, measured, 0.05) is same


def test_numbers_are_those_of_the_groups() -> None:
    assert numbers(r"^(.*) of 100 chunks$", "1,234.5 and 7 of 100 chunks") == [1234.5, 7.0]
    assert numbers(r"^\| .*$", "| 1 | 2 |\n| 3 | 4.5 % |\n") == [1.0, 2.0, 3.0, 4.5]
