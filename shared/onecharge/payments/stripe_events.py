"""What Stripe says unasked, by webhook or in its list of events: both handle it with the same rules.

a PaymentIntent of ours ────────────► Reconciler: its row is compared with Stripe
a refund or dispute of our charge ──► ChargeEventRecorder: the figures on the payment's row
a refund that changed ──────────────► RefundEventHandler: the refund's row, if it has one; and as one of its charge
"""

from dataclasses import dataclass
from typing import assert_never

import stripe
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.payments.charges.events import ChargeEventDeferred, ChargeEventRecorder
from onecharge.payments.charges.gateway import (
    ChargeEvent,
    LookupInconclusive,
    PaymentIntentEvent,
    RefundEvent,
    StripeEvent,
)
from onecharge.payments.charges.reconciler import Reconciler, RowChanged, StripeUnavailable
from onecharge.payments.refunds.canceled_orders import RefundUnfinished
from onecharge.payments.refunds.events import RefundEventDeferred, RefundEventHandler

OUTAGES = (
    StripeUnavailable,
    RowChanged,
    LookupInconclusive,
    ChargeEventDeferred,
    RefundEventDeferred,
    RefundUnfinished,
    stripe.StripeError,
    BotoCoreError,
    ClientError,
    GetParameterError,
)
"""What stops an event halfway: it has to be handled again."""


@dataclass(frozen=True)
class StripeEventHandler:
    """Handles events, in any order and however often."""

    reconciler: Reconciler
    charges: ChargeEventRecorder
    refunds: RefundEventHandler

    def handle(self, event: StripeEvent) -> None:
        """Handle one event. Raises OUTAGES: it has to be handled again."""
        match event:
            case PaymentIntentEvent():
                self._reconcile(event)
            case ChargeEvent():
                self.charges.record(event)
            case RefundEvent():
                self.refunds.handle(event)
                self.charges.record(event)
            case _:
                assert_never(event)

    def _reconcile(self, event: PaymentIntentEvent) -> None:
        try:
            self.reconciler.handle_event(event)
        except RowChanged:
            # Usually by the worker of the same charge, which is done with it now.
            self.reconciler.handle_event(event)
