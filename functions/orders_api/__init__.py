"""orders_api: the order service's HTTP API. Each change of an order is one conditional write."""
