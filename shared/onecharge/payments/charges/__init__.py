"""Charges: one order, one PaymentIntent, at most one charge.

protocol (rules) ─► store (row) ─► charge (the page) ─► gateway    a charge, in reading order
cancel                                                             a cancellation
"""
