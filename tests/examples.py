"""Decides how many made-up examples a test tries: some in an ordinary run, all of them in `make fuzz`."""

import os
from math import ceil

FACTOR = float(os.environ.get("FUZZ_FACTOR", "0.1"))  # of the cases of tests/test_fuzz.py
ORDINARY = 0.3  # of a property's examples


def examples(number: int) -> int:
    """Returns how many of a property's examples this run tries."""
    return number if FACTOR >= 1 else ceil(number * ORDINARY)
