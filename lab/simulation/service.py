"""The deployed payment service as a schedule runs it, and all that the simulation knows of its protocol.

Everything here changes with the protocol; world.py, which plays AWS, Stripe, customers and clocks, does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from charge_order.app import ORDER_EVENT
from onecharge.contract.events import CancelRequestedEvent, Event, OrderPlacedEvent
from onecharge.contract.refund_events import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.payments.apply import apply
from onecharge.payments.deliveries import handle
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.payments_table import PaymentStore
from onecharge.payments.refund import refund
from onecharge.payments.stripe_events import NewestReceived, Received, ReconcileCheckpoint, parse_event
from onecharge.payments.sync import OUTAGES
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.tools import Tools
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.consumer import Disposition
from onecharge.runtime.parallel import one_after_another
from ops.release import Release
from reconcile.run import STEP_SECONDS, ReconcileRun
from stripe_standin.payment_intents import PaymentIntent
from tests.shop.builders import BOUNDS, PAYMENTS, PAYMENTS_STATE, SHOP, TABLES
from tests.shop.dynamodb import MemoryDynamoDB
from tests.shop.sdk import SdkObject
from tests.shop.tools import CountsTo, tools_of
from tests.support.silent import SILENT

RECONCILE_BOUNDS = TimeBounds(240)
WEBHOOK_BOUNDS = TimeBounds(20)
"""How long each function may run, as template.yaml says."""
MESSAGE = ORDER_EVENT
ORDERS = "Orders"

State = PaymentState
IN_WORK, PAID, DECLINED, CANCELED, WAITS = (
    PaymentState.PENDING,
    PaymentState.SUCCEEDED,
    PaymentState.DECLINED,
    PaymentState.CANCELED,
    PaymentState.REQUIRES_ACTION,
)
MAY_BECOME: Mapping[State, set[State]] = {
    IN_WORK: {IN_WORK, PAID, DECLINED, CANCELED, WAITS},
    # A later attempt or a cancellation claims it, or a later change at Stripe wins.
    DECLINED: {DECLINED, IN_WORK, PAID, CANCELED},
    WAITS: {WAITS, IN_WORK, PAID, DECLINED, CANCELED},
    PAID: {PAID},
    CANCELED: {CANCELED},
}
"""The states that may follow each state."""


def order_of(intent: PaymentIntent) -> str:
    """The order that a PaymentIntent was created for: no person edits its description."""
    return str(intent.description).removeprefix("Order ")


def attempt_of_confirm(key: str) -> int:
    """The attempt whose confirm has this idempotency key."""
    return int(key.split(":")[2])


class AlarmLog:
    """A logger that says which orders and PaymentIntents an alarm names."""

    def __init__(self, alarmed: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._alarmed = alarmed

    def error(self, message: str, *, extra: Mapping[str, Any], **_: Any) -> None:
        self._alarmed(str(extra["cause"]), extra)

    info = warning = exception = SILENT


class SimulatedPayments:
    """The functions, put together as their app.py does; each call runs in a worker of its own.

    `clock` gives the time as the worker that runs sees it. Mutations replace parts before anything runs.
    """

    def __init__(self, dynamodb: Any, stripe_client: Any, clock: Callable[[], int], logger: Any = SILENT) -> None:
        self.dynamodb, self.clock, self.logger = dynamodb, clock, logger
        self.bounds = BOUNDS
        self.store = PaymentStore(dynamodb, PAYMENTS)
        self.stripe = PaymentIntents(stripe_client, SHOP)
        self.publish: Callable[[Event], None] = SILENT
        self.replaced: dict[Callable[..., Any], Callable[..., Any]] = {}
        """The functions that a mutant replaces, wherever they are called, each with its replacement."""
        self.acknowledge: Callable[[Disposition], Disposition] = lambda disposition: disposition

    def handle(self, event: OrderPlacedEvent | CancelRequestedEvent) -> Disposition:
        """A delivery: of the order, or of the order service's request to cancel it."""
        return self.acknowledge(handle(event, self.tools(self.bounds)))

    def refund(self, event: RefundRequestedEvent) -> Disposition:
        """A delivery of a refund's request."""
        return refund(event, self.tools(self.bounds))

    def receive(self, event: Mapping[str, Any], report: Callable[[str], None]) -> bool:
        """A webhook, in an execution environment of its own; returns whether it was acknowledged."""
        try:
            if parsed := parse_event(SdkObject(event)):
                NewestReceived(CheckpointStore(self.dynamodb, PAYMENTS_STATE, Received)).saw(parsed)
                apply(parsed, self.tools(WEBHOOK_BOUNDS, report))
        except OUTAGES:
            report("WebhookDeferred")
            return False
        return True

    def reconcile(self, report: Callable[[str], None], seconds_left: Callable[[], float]) -> None:
        """One scheduled run of the reconciler."""
        ReconcileRun(
            make_tools=lambda: self.tools(TimeBounds(STEP_SECONDS), report),
            state=CheckpointStore(self.dynamodb, PAYMENTS_STATE, ReconcileCheckpoint),
            received=CheckpointStore(self.dynamodb, PAYMENTS_STATE, Received),
            seconds_left=seconds_left,
            logger=self.logger,
            counts=CountsTo(report),
            parallel=one_after_another,
        ).run()

    def read_events_again(self, since: int) -> None:
        """The reconciler has applied Stripe's events up to then, as after a restore, or before a schedule begins."""
        client: Any = MemoryDynamoDB(TABLES, tables=self.dynamodb.tables)
        checkpoints = CheckpointStore(client, PAYMENTS_STATE, ReconcileCheckpoint)
        checkpoints.write(replace(checkpoints.read() or ReconcileCheckpoint(), since=since))

    def release(self, orders: Any, stripe_client: Any) -> Release:
        """The operator's command."""
        return Release(self.store, orders, replace(self.stripe, client=stripe_client), is_dry_run=False)

    def tools(self, bounds: TimeBounds, report: Callable[[str], None] = SILENT) -> Tools:
        given: dict[str, Any] = {"logger": self.logger, "count": report, "bounds": bounds, "publish": self.publish}
        return tools_of(self.store, self.stripe, self.clock, **given)


@dataclass(frozen=True)
class WaitingOrders:
    """The order service as `ops release` sees it."""

    find: Callable[[str], StoredOrder]
    table: str = ORDERS
