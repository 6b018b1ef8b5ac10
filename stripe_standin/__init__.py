"""Stripe's payments in a small HTTP server for tests, with a ledger of what was charged. Start at README.md."""
