"""The order service's own: the schema, state machine and store of its orders, and of the refunds that they request."""
