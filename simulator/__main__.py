"""`python -m simulator`: the simulated provider without Django, listening within a fraction of a second."""

from simulator.server import main

main()
