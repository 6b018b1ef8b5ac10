"""update_order: moves an order to what its payment came to, and a refund to what became of it."""
