"""What reconciles payments with Stripe, put together: the reconciler, and the handler of Stripe's events."""

from collections.abc import Mapping
from dataclasses import replace

from onecharge.payments.charges.charge import ChargeTools
from onecharge.payments.charges.event_handler import ChargeEventHandler
from onecharge.payments.charges.protocol import FoundIntent, Payment
from onecharge.payments.charges.reconciler import Reconciler
from onecharge.payments.event_handler import StripeEventHandler
from onecharge.payments.instruments import Instruments
from onecharge.payments.refunds.canceled_orders import refund_canceled_order
from onecharge.payments.refunds.event_handler import RefundEventHandler
from onecharge.payments.refunds.refund import RefundTools
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.service import PaymentService
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

    def event_handler(self, tools: ChargeTools) -> StripeEventHandler:
        """The handler, and its reconciler."""
        refund_tools = self.service.refund_tools(self._refunds)
        return event_handler_of(
            tools, refund_tools, bounds=self.service.bounds, requires_action_seconds=self._requires_action_seconds
        )


def event_handler_of(
    tools: ChargeTools, refund_tools: RefundTools, *, bounds: TimeBounds, requires_action_seconds: int
) -> StripeEventHandler:
    """The handler, and its reconciler."""

    def refund_in_time(payment: Payment, intent: FoundIntent) -> None:
        deadline = bounds.deadline(tools.instruments.clock())
        refund_canceled_order(payment, intent, replace(refund_tools, deadline=deadline))

    return StripeEventHandler(
        reconciler=Reconciler(
            tools=tools,
            requires_action_seconds=requires_action_seconds,
            bounds=bounds,
            refund_canceled_order=refund_in_time,
        ),
        charges=ChargeEventHandler(tools.store, tools.gateway, tools.instruments),
        handle_refund=RefundEventHandler(refund_tools.store, refund_tools.gateway, tools.instruments).handle,
    )
