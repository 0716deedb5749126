"""Extends the product's settings: Django has as many connections as a worker has own sessions (test_overload.py)."""

from gateway.settings import *  # noqa: F403
from gateway.settings import DATABASES

if "pool" in DATABASES["default"].get("OPTIONS", {}):
    DATABASES["default"]["OPTIONS"]["pool"]["max_size"] = 8
