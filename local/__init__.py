"""The embedded run: the whole system on one machine, without Docker and without an account."""
