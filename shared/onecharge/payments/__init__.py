"""The payment service: what its functions share.

charge, charge_rules, charge_rows     a charge: the page, its decisions, its table; cancel: a cancellation
refund, refund_rules, refund_rows     a refund, likewise; canceled_orders: one that nobody has requested
deliveries, rows                      what becomes of a message, and of a row that is claimed
stripe_gateway, _objects, _responses  Stripe's side: requests, what they show, what is answered otherwise
answers                               what follows from such an answer
stripe_events, sync, sync_rules       Stripe's later word: an event, what follows from it, how a row differs
tools, parts                          what all of this is worked on with, and how it is put together
"""
