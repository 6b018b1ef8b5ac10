"""orders_api: the order service's HTTP API; each change of an order is one conditional write."""
