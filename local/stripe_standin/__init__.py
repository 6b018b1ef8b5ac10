"""A stand-in for Stripe's API that is honest about idempotency, with a ledger of charges as the oracle of tests."""
