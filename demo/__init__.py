"""What `make run` starts: a demo account on the demo catalogue, the simulated provider and the gateway."""
