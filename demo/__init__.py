"""The demo that `make run` starts: an account on the demo catalogue, the simulated provider and the gateway."""
