"""`make stripe-limit`: is Stripe's limit kept, and used? The deployed function under a stand-in that enforces it."""
