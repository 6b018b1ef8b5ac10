"""A small HTTP server for the part of Stripe's API that onecharge uses, with a ledger of charges for tests."""
