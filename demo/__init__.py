"""Runs the demo for `make run`: an account on the demo catalogue, the simulated provider and the gateway."""
