"""The order service's own: the schema, state machine and store of what its tables hold."""
