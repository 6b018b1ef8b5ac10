"""The payment service: what its functions share.

charges/, refunds/                   protocol (decisions), store (rows), gateway (Stripe), charge and refund (the page)
leases, work                         what becomes of a row and of a message
stripe_events, apply_event, reconcile          Stripe's events: parsed, applied, compared with a row
stripe_client, stripe_rate, stripe_responses   Stripe's side; answers: what follows from a response
service, instruments, time_bounds    how the parts are put together
"""
