"""Charges: the protocol (pure), its store, its worker, Stripe's PaymentIntents."""
