"""Benchmarks of onecharge, each with its command."""
