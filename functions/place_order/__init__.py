"""place_order: the order service's HTTP API; each change of an order is one conditional write."""
