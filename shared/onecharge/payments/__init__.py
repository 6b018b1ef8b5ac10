"""The payment service: what its functions share.

charges/                protocol, rules, row, store, worker, gateway, event_handler, discrepancy
refunds/                the same for refunds
leases, worker, delivery                what is done with a row, a job and a message
stripe_client, stripe_responses, stripe_events, event_handler           Stripe's side
processed_events        the events that the webhook has processed
service, reconciliation, instruments, time_bounds       how the parts are put together
"""
