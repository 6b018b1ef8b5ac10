"""republish_orders: publishes again what stayed PENDING, on a schedule."""
