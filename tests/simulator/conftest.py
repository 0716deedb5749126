from collections.abc import Iterator

import pytest

from tests.simulator.process import Provider, running


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    """The simulated provider itself, for tests of what it sends: one for all, steered by the model names."""
    with running() as started:
        yield started
