"""What the payment service's functions share: the protocols of charges and refunds, their stores, Stripe, bounds."""
