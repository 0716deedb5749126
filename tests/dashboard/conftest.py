from collections.abc import Iterator

import pytest
from django.core.cache import cache

from tests.aliases.conftest import served
from tests.seeding import seed

__all__ = ["seed", "served"]


@pytest.fixture(autouse=True)
def _nobody_has_guessed() -> Iterator[None]:
    """Failed sign-ins are counted in the cache, which outlives a test."""
    cache.clear()
    yield
    cache.clear()
