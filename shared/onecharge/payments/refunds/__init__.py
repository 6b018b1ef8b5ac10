"""Refunds: the protocol (pure), its store, its worker, Stripe's refunds."""
