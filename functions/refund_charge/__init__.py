"""refund_charge: makes refunds at Stripe, each under its one idempotency key, and tells what became of them."""
