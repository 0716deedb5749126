"""The product's settings, with every request left to Django's handler (test_short_chain.py)."""

from gateway.settings import *  # noqa: F403

INFERENCE_ENDPOINTS = "tests.gateway.without_short_chain.NONE"
NONE: dict[str, object] = {}
