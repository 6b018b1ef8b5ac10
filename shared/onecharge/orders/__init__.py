"""The order service: the schema, state machines and stores of its tables."""
