"""reconcile_charges: reconciles payments with Stripe, on a schedule."""
