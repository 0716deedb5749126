from collections.abc import Iterator

import pytest

from tests.simulator.process import Provider, running


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    """Starts the simulated provider itself, once for all tests of what it sends. Model names choose its behaviour."""
    with running() as started:
        yield started
