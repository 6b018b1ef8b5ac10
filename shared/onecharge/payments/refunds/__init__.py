"""Refunds: an optional part. The modules are those of charges, with the same names.

protocol (rules) ─► store (row) ─► worker ─► gateway    a refund, in reading order
events, discrepancy                                     what Stripe says later
canceled_orders                                         the refund of an order that is charged although it is canceled
service                                                 how the parts are put together
"""
