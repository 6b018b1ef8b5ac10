"""receive_stripe_event: takes Stripe's webhooks, and settles what they tell by the same rules as the reconciler."""
