"""What the payment service's functions share: the charge protocol, its ledger, Stripe, and the time bounds of both."""
