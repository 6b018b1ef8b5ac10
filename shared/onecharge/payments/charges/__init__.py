"""Charges: one order, one PaymentIntent, at most one charge.

protocol ─► store (row) ─► worker (rules) ─► gateway    a charge, in reading order
cancel                                                  a cancellation
events, discrepancy, reconciler                         what Stripe says later
"""
