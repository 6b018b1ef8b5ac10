"""receive_stripe_event: takes Stripe's webhooks, and reconciles payments by the same rules as the scheduled run."""
