"""update_order: moves an order to what its payment came to."""
