"""The payment service: each order is charged once, and its row says what Stripe says.

charge, charge_rules, charge_rows, rows, payment_intents, deliveries     a charge: the page, its decisions, its table
sync, sync_rules, stripe_events                                          Stripe's later word
refund, refund_rules, refund_rows, refund_deliveries, sync_refund        a refund
stripe_client, _gateway, _objects, _responses, _rate, _metrics, answers  Stripe's API
parts, tools, refund_tools, instruments, time_bounds                     what all of it is made of
"""
