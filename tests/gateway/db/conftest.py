from collections.abc import Iterator

import pytest

from gateway.db import sessions
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def own_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes reads and writes use a worker's own sessions."""
    opened = sessions.Sessions("default", size=1, patience=PATIENCE_SECONDS)
    monkeypatch.setitem(sessions._opened, "default", opened)
    yield
    opened.close()
