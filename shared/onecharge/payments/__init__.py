"""The payment service: what its functions share.

charges/, refunds/      two protocols: protocol, rules, row, store, worker, gateway, event_handler, discrepancy
leases, worker, delivery                what both do with a row, a job and a message
stripe_client, stripe_responses, stripe_events, event_handler, processed_events     Stripe's side of both
service, reconciliation, instruments, time_bounds       how the parts are put together
"""
