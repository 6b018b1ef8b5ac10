"""Refunds: an optional part. The modules are those of charges, with the same names.

protocol (rules) ─► store (row) ─► refund (the page) ─► gateway    a refund, in reading order
canceled_orders                                                    of an order that is charged although it is canceled
"""
