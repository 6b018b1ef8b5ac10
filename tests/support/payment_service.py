"""The payment service in one process: its stores, workers, cancellation and reconciler, over Stripe in process.

The test chooses the client of DynamoDB.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from charge_order.app import handle
from onecharge.contract.events import OrderPlaced, OrderPlacedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.cancel import cancel_payment
from onecharge.payments.charges.charge import ChargeTools
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.protocol import FrozenRequest, Payment, StripeIntent
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.reconcile import ReconcileSteps, ReconcileTools, reconcile_row
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.consumer import Disposition
from tests.shop.dynamodb import Faults
from tests.support.scripted_stripe import VISA, ScriptedStripe, killed, killed_after
from tests.support.tools import NO_RATE_LIMIT, Cancellation, cancellation_of, charge_tools, reconcile_tools
from tests.support.tools import REQUIRES_ACTION_SECONDS as REQUIRES_ACTION_SECONDS

T0 = 1_800_000_000


def order_id(name: str) -> str:
    return f"ord_{name:0>32}"


@dataclass
class PaymentService:
    """Everything that works on the Payments table, at a time that the test sets."""

    dynamodb: Any
    logger: Any
    table: str = "payments"
    refunds_table: str = "refunds"
    counted: list[str] = field(default_factory=list)
    refunded: list[tuple[str, str]] = field(default_factory=list)
    """The canceled orders and their PaymentIntents that were refunded."""
    refund_failing: Callable[[], Exception] | None = None
    requires_action_seconds: int = REQUIRES_ACTION_SECONDS
    rate: Any = NO_RATE_LIMIT
    look_up_placed_before: int = 0

    def __post_init__(self) -> None:
        self.stripe = ScriptedStripe(io=Faults(T0))
        self.store = PaymentStore(self.dynamodb, self.table)
        self.gateway = StripeGateway(self.stripe.client())
        self.bounds = TimeBounds.of(20)
        self.instruments = Instruments(lambda: self.now, self.logger, self.counted.append)
        self.refund_store = RefundStore(self.dynamodb, self.refunds_table)

    @property
    def now(self) -> int:
        return self.stripe.io.time

    @now.setter
    def now(self, now: int) -> None:
        self.stripe.io.time = now

    @property
    def tools(self) -> ChargeTools:
        """What a delivery that begins now charges with."""
        return charge_tools(
            self.store,
            self.gateway,
            self.instruments,
            bounds=self.bounds,
            rate=self.rate,
            look_up_placed_before=self.look_up_placed_before,
        )

    def reconcile_tools(self) -> ReconcileTools:
        """What an event, or a row, is reconciled with from now on."""
        steps = ReconcileSteps(refund_canceled_order=self._refund_canceled_order)
        tools = reconcile_tools(self.tools, self.refund_store, steps)
        return replace(tools, requires_action_seconds=self.requires_action_seconds)

    def _refund_canceled_order(self, payment: Payment, intent: StripeIntent, _: object) -> None:
        if self.refund_failing:
            raise self.refund_failing()
        self.refunded.append((payment.request.order_id, intent.payment_intent_id))

    def order(self, name: str = "a", *, card: str = VISA, attempt: int = 1) -> OrderPlaced:
        return OrderPlaced(
            order_id=order_id(name),
            attempt=attempt,
            customer_id="cus_1",
            amount_minor=3000,
            currency="EUR",
            payment_method=card,
            placed_at=datetime.fromtimestamp(T0, UTC),
        )

    def charge(self, name: str = "a", *, card: str = VISA, attempt: int = 1) -> Disposition:
        """Deliver the order's message."""
        order = self.order(name, card=card, attempt=attempt)
        return handle(OrderPlacedEvent.of(order, correlation_id="c"), self.tools)

    def crash_before(self, operation: str, name: str = "a", **how: Any) -> None:
        """Deliver the message to a worker that is killed before this request to Stripe."""
        self.stripe.next(operation, killed)
        with suppress(KeyboardInterrupt):
            self.charge(name, **how)

    def crash_after(self, operation: str, name: str = "a", **how: Any) -> None:
        """The same, after Stripe has executed it: the row does not show that."""
        self.stripe.next(operation, killed_after)
        with suppress(KeyboardInterrupt):
            self.charge(name, **how)

    def cancel(self, name: str = "a", **how: Any) -> Cancellation:
        """The order service asks, and waits."""
        payment = cancel_payment(self.order(name, **how), self.tools, correlation_id="c")
        return cancellation_of(payment)

    def request_cancel(self, name: str = "a", **how: Any) -> Cancellation:
        """The request is stored, and nothing is finished: Stripe's key cannot be read."""
        order = self.order(name, **how)
        payment = self.store.request_cancel(
            FrozenRequest.of(order),
            attempt=order.attempt,
            payment_method=order.payment_method,
            correlation_id="c",
            now=self.now,
        )
        return cancellation_of(payment)

    def reconcile(self, name: str = "a") -> bool:
        return reconcile_row(self.row(name), self.reconcile_tools())

    def row(self, name: str = "a") -> Payment:
        payment = self.store.read(order_id(name))
        assert payment is not None
        return payment

    def state(self, name: str = "a") -> PaymentState:
        return self.row(name).state

    def item(self, name: str = "a") -> dict[str, Any]:
        """The row's attributes as they are stored."""
        key = {"order_id": {"S": order_id(name)}}
        return dict(self.dynamodb.get_item(TableName=self.table, Key=key, ConsistentRead=True)["Item"])
