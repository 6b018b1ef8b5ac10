"""What reconciles payments with Stripe, put together: the reconciler, and the handler of Stripe's events."""

from collections.abc import Mapping

from onecharge.payments.charges.event_handler import ChargeEventHandler
from onecharge.payments.charges.reconciler import Reconciler
from onecharge.payments.event_handler import StripeEventHandler
from onecharge.payments.instruments import Instruments
from onecharge.payments.refunds.service import Refunds
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.service import Charges, PaymentService
from onecharge.payments.time_bounds import TimeBounds


class Reconciliation:
    """Everything that outlives an invocation.

    Reads REQUIRES_ACTION_SECONDS, and what PaymentService reads.
    Reads REFUNDS_TABLE.
    """

    def __init__(self, environment: Mapping[str, str], *, bounds: TimeBounds, instruments: Instruments) -> None:
        self.service = PaymentService(environment, bounds=bounds, instruments=instruments)
        self._requires_action_seconds = int(environment["REQUIRES_ACTION_SECONDS"])
        self._refunds = RefundStore(self.service.dynamodb, environment["REFUNDS_TABLE"])

    def event_handler(self, charges: Charges) -> StripeEventHandler:
        """The handler, and its reconciler, over one Stripe client."""
        bounds, instruments = charges.bounds, charges.instruments
        refunds = Refunds(self._refunds, charges.gateway.client, bounds, instruments)
        reconciler = Reconciler(
            store=charges.store,
            gateway=charges.gateway,
            cancel=charges.cancel,
            requires_action_seconds=self._requires_action_seconds,
            bounds=bounds,
            instruments=instruments,
            refund_canceled_order=refunds.refund_canceled_order,
        )
        return StripeEventHandler(
            reconciler=reconciler,
            charges=ChargeEventHandler(charges.store, charges.gateway, instruments),
            handle_refund=refunds.event_handler.handle,
        )
