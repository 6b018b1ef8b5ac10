"""republish: on a schedule, publishes again what waits for an outcome: orders and refunds."""
