"""stripe_webhook: takes Stripe's webhooks, and reconciles payments by the same rules as the scheduled run."""
