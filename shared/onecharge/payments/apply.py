"""Applies one of Stripe's events, whether a webhook or a scheduled run brings it."""

from onecharge.payments.refund import tell_later_word
from onecharge.payments.stripe_events import StripeEvent
from onecharge.payments.sync import sync
from onecharge.payments.tools import Tools


def apply(event: StripeEvent, tools: Tools) -> None:
    """Make our rows say what Stripe says after this event. Raises sync.OUTAGES."""
    order_id = sync(event, tools)
    if order_id is not None and event.stripe_refund_id is not None:
        tell_later_word(order_id, event.stripe_refund_id, event, tools)
