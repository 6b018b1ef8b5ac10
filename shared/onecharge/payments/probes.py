"""What a self-check of the payment service's functions tries at Stripe: a list of one, which changes nothing."""

from onecharge.payments.stripe_client import StripeAccount
from onecharge.runtime.self_check import Probe


def payment_intents_probe(account: StripeAccount) -> Probe:
    """The key can be read, is accepted, and may read PaymentIntents."""
    return lambda: account.client().v1.payment_intents.list({"limit": 1})


def refunds_probe(account: StripeAccount) -> Probe:
    """The key can be read, is accepted, and may read refunds."""
    return lambda: account.client().v1.refunds.list({"limit": 1})


def events_probe(account: StripeAccount) -> Probe:
    """The key can be read, is accepted, and may read events."""
    return lambda: account.client().v1.events.list({"limit": 1})
