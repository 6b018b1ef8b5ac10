"""update_order: moves an order to the status that follows from the payment service's events."""
