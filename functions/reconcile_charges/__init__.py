"""reconcile_charges: holds the ledger against Stripe, on a schedule."""
