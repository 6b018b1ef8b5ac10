"""refund_charge: claims a refund, looks it up at Stripe, makes it under its one idempotency key, finalizes the row."""
