"""update_order: gives an order the status of its payment, and a refund that of its outcome."""
