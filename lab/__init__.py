"""Fakes, builders and harnesses: what tests, the simulation, benchmarks and the local run share."""
