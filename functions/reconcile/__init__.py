"""reconcile: reconciles payments with Stripe, on a schedule."""
