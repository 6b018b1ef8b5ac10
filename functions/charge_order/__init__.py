"""charge_order: claims an order, charges it at Stripe under the order's own idempotency key, settles the row."""
