"""The product's settings with as many connections of Django as a worker has sessions of its own (test_overload.py)."""

from gateway.settings import *  # noqa: F403
from gateway.settings import DATABASES

if "pool" in DATABASES["default"].get("OPTIONS", {}):
    DATABASES["default"]["OPTIONS"]["pool"]["max_size"] = 8
