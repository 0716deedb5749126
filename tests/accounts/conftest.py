from collections.abc import Iterator

import pytest
from django.core.cache import cache


@pytest.fixture(autouse=True)
def _nobody_has_guessed() -> Iterator[None]:
    """Failed sign-ins are counted in the cache, which outlives a test."""
    cache.clear()
    yield
    cache.clear()
