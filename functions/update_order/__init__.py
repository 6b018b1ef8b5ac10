"""update_order: gives an order the status of its payment, and a refund the status of its outcome."""
