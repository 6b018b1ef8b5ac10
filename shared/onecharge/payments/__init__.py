"""The payment service: each order is charged once, and its row says what Stripe says.

charge, charge_rules, payments_table, payment_intents, deliveries   a charge: the page, its decisions, its table
refund, refund_rules                                                a refund, whose state is Stripe's list
stripe_events, apply, sync, sync_rules                              later changes at Stripe
stripe_client, _responses, _errors, _rate, disputes                 Stripe's API
parts, tools, time_bounds                                           what all of it is made of
"""
