"""The parts that refund, put together: for refund_charge, the webhook and the scheduled run."""

from dataclasses import dataclass

import stripe

from onecharge.payments.instruments import Instruments
from onecharge.payments.refunds.canceled_orders import RefundCanceledOrder
from onecharge.payments.refunds.event_handler import RefundEventHandler
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.refunds.worker import RefundWorker
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.worker import AT_ONCE, Turn


@dataclass(frozen=True)
class Refunds:
    """The parts that refund, over one store and one Stripe client."""

    store: RefundStore
    client: stripe.StripeClient
    bounds: TimeBounds
    instruments: Instruments
    turn: Turn = AT_ONCE

    @property
    def gateway(self) -> StripeRefunds:
        return StripeRefunds(self.client)

    @property
    def worker(self) -> RefundWorker:
        return RefundWorker(store=self.store, gateway=self.gateway, instruments=self.instruments, turn=self.turn)

    @property
    def event_handler(self) -> RefundEventHandler:
        return RefundEventHandler(self.store, self.gateway, self.instruments)

    @property
    def refund_canceled_order(self) -> RefundCanceledOrder:
        return RefundCanceledOrder(self.worker, self.bounds)
