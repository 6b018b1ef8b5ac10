"""refund_charge: claims a refund, makes it at Stripe under the refund's own idempotency key, settles the row."""
