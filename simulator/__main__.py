"""Runs the simulated provider without Django (`python -m simulator`), which starts within a fraction of a second."""

from simulator.server import main

main()
