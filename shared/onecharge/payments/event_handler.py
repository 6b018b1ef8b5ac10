"""Passes each of Stripe's events to its handler: the same for webhooks and the scheduled run.

PaymentIntentEvent ─► Reconciler: compares the payment's row with Stripe
ChargeEvent ────────► ChargeEventHandler: records refunds and disputes on the payment's row
RefundEvent ────────► RefundEventHandler, if there is a refunds part; then as an event of its charge
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import stripe
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.payments.charges.event_handler import ChargeEventHandler
from onecharge.payments.charges.protocol import CHARGE_RULES
from onecharge.payments.charges.reconciler import Reconciler, RowChanged, StripeUnavailable
from onecharge.payments.stripe_events import ChargeEvent, EventDeferred, PaymentIntentEvent, RefundEvent, StripeEvent
from onecharge.payments.stripe_responses import LookupInconclusive, classify
from onecharge.runtime.alarms import Cause
from onecharge.runtime.secrets import SecretUnavailable

OUTAGES = (EventDeferred, LookupInconclusive, stripe.StripeError, BotoCoreError, ClientError, SecretUnavailable)
"""What may stop the handling of an event halfway: the event has to be delivered again."""


def cause_of(error: Exception) -> Cause | None:
    """Why what stopped the handling of an event does not resolve by itself, if so."""
    if isinstance(error, StripeUnavailable):
        return error.cause
    if isinstance(error, stripe.StripeError):
        return CHARGE_RULES[classify(error).kind].alarm
    return None if isinstance(error, OUTAGES) else Cause.UNEXPECTED_ERROR


def no_refunds(_: RefundEvent) -> None:
    """Without the refunds part: refunds are made by hand, and have no rows."""


@dataclass(frozen=True)
class StripeEventHandler:
    """Handles events. Idempotent, and independent of their order."""

    reconciler: Reconciler
    charges: ChargeEventHandler
    handle_refund: Callable[[RefundEvent], object] = no_refunds

    def handle(self, event: StripeEvent) -> None:
        """Handle one event. Raises OUTAGES: it has to be delivered again."""
        match event:
            case PaymentIntentEvent():
                self._reconcile(event)
            case ChargeEvent():
                self.charges.handle(event)
            case RefundEvent():
                self.handle_refund(event)
                self.charges.handle(event)
            case _:
                assert_never(event)

    def _reconcile(self, event: PaymentIntentEvent) -> None:
        try:
            self.reconciler.handle_event(event)
        except RowChanged:
            # Usually by the worker of the same charge, which has finalized the row by now.
            self.reconciler.handle_event(event)
