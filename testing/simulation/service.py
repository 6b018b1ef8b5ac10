"""The deployed payment service as a schedule runs it, and all that the simulation knows of its protocol.

Everything here changes with the protocol; world.py, which plays AWS, Stripe, customers and clocks, does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from charge_order.app import ORDER_EVENT, handle
from get_payment.payment import client_secret_of
from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.charge import ChargeTools, Steps
from onecharge.payments.charges.event_handler import ChargeEventHandler
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.protocol import FoundIntent, FrozenRequest, Payment
from onecharge.payments.charges.reconciler import Reconciler
from onecharge.payments.charges.store import UNFINISHED, PaymentStore
from onecharge.payments.event_handler import OUTAGES, StripeEventHandler
from onecharge.payments.instruments import Instruments
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.receive_event import ReceiveStripeEvent
from onecharge.payments.refunds.event_handler import RefundEventHandler
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.stripe_events import StripeEvents, parse_event
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.consumer import Disposition
from onecharge.runtime.parallel import one_after_another
from reconcile.app import AT_ONCE, STEP_SECONDS
from reconcile.checkpoint import ReconcileCheckpoint
from reconcile.reconcile import FINALIZING_SECONDS as FINALIZING_SECONDS
from reconcile.reconcile import ReconcileCharges
from testing.silent import SILENT
from testing.simulation.dynamodb import Item, MemoryDynamoDB
from testing.simulation.stripe import Event, PaymentIntent
from testing.tools import NO_RATE_LIMIT, charge_tools

BOUNDS = TimeBounds.of(30)
RECONCILE_BOUNDS = TimeBounds.of(120)
WEBHOOK_BOUNDS = TimeBounds.of(20)
PAGE_BOUNDS = TimeBounds.of(15)
"""How long each function may run, as template.yaml says."""
PAYMENTS = "Payments"
PAYMENTS_STATE = "PaymentsState"
REFUNDS = "Refunds"
STRIPE_EVENTS = "StripeEvents"
TABLES: Mapping[str, tuple[str, ...]] = {
    PAYMENTS: ("order_id",),
    PAYMENTS_STATE: ("name",),
    REFUNDS: ("order_id", "refund_id"),
    STRIPE_EVENTS: ("event_id",),
}
INDEXES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    PAYMENTS: {UNFINISHED: ("unfinished_shard", "unfinished_claimed_at")}
}
MESSAGE = ORDER_EVENT
REQUIRES_ACTION_SECONDS = 12 * 3600
NEVER_REPORTED = {
    *("ChargedTwice", "RowDiffersFromStripe", "RowUnknownToStripe", "CanceledOrderCharged", "OtherMoneyCharged"),
    *("UnattendedNeedsReview", "ChargeWithoutRow"),
}
"""Metrics of what should not happen."""
REPORTED_OF_LOST_ROWS = {"RowRecovered"}
"""Metrics that nothing may cause but a row that was lost."""

State = PaymentState
IN_WORK, PAID, DECLINED, CANCELED, WAITS, REVIEW = (
    PaymentState.PENDING,
    PaymentState.SUCCEEDED,
    PaymentState.DECLINED,
    PaymentState.CANCELED,
    PaymentState.REQUIRES_ACTION,
    PaymentState.NEEDS_REVIEW,
)
MAY_BECOME: Mapping[State, set[State]] = {
    IN_WORK: set(PaymentState),
    # A later attempt or a cancellation claims it; or what Stripe says later wins.
    DECLINED: {DECLINED, IN_WORK, PAID, CANCELED},
    WAITS: {WAITS, IN_WORK, PAID, DECLINED, CANCELED},
    REVIEW: {REVIEW, PAID},
    PAID: {PAID},
    CANCELED: {CANCELED},
}
"""What a row may be after each state."""

RowKey = tuple[str, ...]
"""A row's key attributes, as the table has them: the order id."""


@dataclass(frozen=True)
class RowView:
    """What the invariants need to know of a row."""

    key: RowKey
    state: State
    attempt: int
    lease: str | None
    """Differs with every claim: who may write. None if nobody holds the row."""
    lease_expires_at: int
    revision: int
    payment_intent_id: str | None
    is_to_be_canceled: bool
    money: tuple[int, str]

    @classmethod
    def of(cls, item: Item) -> "RowView":
        return cls(
            key=(item["order_id"]["S"],),
            state=PaymentState(item["state"]["S"]),
            attempt=int(item["attempt"]["N"]),
            lease=item["lease_owner"]["S"] if "lease_owner" in item else None,
            lease_expires_at=int(item["lease_expires_at"]["N"]),
            revision=int(item["revision"]["N"]),
            payment_intent_id=item["payment_intent_id"]["S"] if "payment_intent_id" in item else None,
            is_to_be_canceled="cancel_requested_at" in item,
            money=(int(item["amount_minor"]["N"]), item["currency"]["S"].lower()),
        )


def row_key_of(event: OrderPlacedEvent | CancelRequestedEvent) -> RowKey:
    """The row that a delivery is about."""
    return (event.data.order_id,)


def row_key_of_intent(intent: PaymentIntent) -> RowKey:
    """The row that a PaymentIntent belongs to."""
    return (intent.metadata["order_id"],)


def is_key_of_create(key: str) -> bool:
    """Whether a create has this idempotency key."""
    return key.startswith("order:") and key.count(":") == 2


def attempt_of_confirm(key: str) -> int:
    """The attempt whose confirm has this idempotency key."""
    return int(key.split(":")[2])


@dataclass(frozen=True)
class HurriedGateway(StripeGateway):
    """A lookup may run out of time before each of its pages."""

    hurry: Callable[[], bool] = lambda: False

    def find_payment_intents(
        self, request: FrozenRequest, *, now: int, has_time: Callable[[], bool] = lambda: True
    ) -> list[FoundIntent]:
        return super().find_payment_intents(request, now=now, has_time=lambda: has_time() and not self.hurry())


class PaymentService:
    """The functions, put together as their app.py does; each call runs in a worker of its own.

    `clock` gives the time as the worker that runs sees it. Mutations replace parts before anything runs.
    """

    def __init__(self, dynamodb: Any, stripe_client: Any, clock: Callable[[], int]) -> None:
        self.dynamodb, self.stripe_client, self.clock = dynamodb, stripe_client, clock
        self.bounds = BOUNDS
        self.store = PaymentStore(dynamodb, PAYMENTS)
        self.gateway: StripeGateway = HurriedGateway(stripe_client, parallel=one_after_another, hurry=self._is_late)
        self.steps = Steps()
        """Of `charge`, which mutants replace."""
        self.rate = NO_RATE_LIMIT
        self.acknowledge: Callable[[Disposition], Disposition] = lambda disposition: disposition
        self.reconciler: type[Reconciler] = Reconciler
        self.receiver: type[ReceiveStripeEvent] = ReceiveStripeEvent

    def _is_late(self) -> bool:
        return self.dynamodb.io.fault("lookup", ("out of time",)) is not None

    def handle(self, event: OrderPlacedEvent | CancelRequestedEvent) -> Disposition:
        """A delivery: of the order, or of the order service's request to cancel it."""
        return self.acknowledge(handle(event, replace(self._tools(self.bounds), rate=self.rate)))

    def client_secret(self, event: OrderPlacedEvent) -> str | None:
        """What the customer's page is answered that asks for it; None if nothing waits for the customer."""
        payment = self.store.read(event.data.order_id)
        return client_secret_of(payment, lambda: self.gateway) if payment else None

    def receive(self, event: Event, report: Callable[[str], None]) -> bool:
        """A webhook; whether it was acknowledged."""
        events = self._events(self._reconciler(WEBHOOK_BOUNDS, report), report)
        shown: Any = event  # As the SDK shows it.
        receive: Callable[[Any], None] = partial(_handle, events)
        receive = self.receiver(
            events=events,
            processed=ProcessedEvents(self.dynamodb, STRIPE_EVENTS),
            instruments=self._instruments(report),
            is_live=False,
        )
        try:
            receive(shown)
        except OUTAGES:
            report("WebhookDeferred")
            return False
        return True

    def reconcile(self, report: Callable[[str], None], seconds_left: Callable[[], float]) -> None:
        """One scheduled run of the reconciler."""
        bounds = replace(TimeBounds.of(STEP_SECONDS), lease_seconds=RECONCILE_BOUNDS.lease_seconds)
        reconciler = self._reconciler(bounds, report)
        run = ReconcileCharges(
            store=self.store,
            events=StripeEvents(self.gateway.client),
            handler=self._events(reconciler, report),
            is_processed=ProcessedEvents(self.dynamodb, STRIPE_EVENTS).contains,
            checkpoints=CheckpointStore(self.dynamodb, PAYMENTS_STATE, ReconcileCheckpoint),
            seconds_left=seconds_left,
            step_seconds=STEP_SECONDS,
            instruments=self._instruments(report),
            gauge=SILENT,
            at_once=AT_ONCE,
        )
        run()

    def reconciler_has_run(self, at: int) -> None:
        """It did so before anything of the schedule happened, and so reads all of its events."""
        checkpoint = ReconcileCheckpoint.first(since=at, now=at)
        client: Any = MemoryDynamoDB(TABLES, tables=self.dynamodb.tables)
        CheckpointStore(client, PAYMENTS_STATE, ReconcileCheckpoint).write(checkpoint)

    def forget_handled_events(self) -> None:
        """Which events were handled may be forgotten: it only saves work."""
        self.dynamodb.tables.pop(STRIPE_EVENTS, None)

    def _instruments(self, report: Callable[[str], None] = SILENT) -> Instruments:
        return Instruments(self.clock, SILENT, report)

    def _tools(self, bounds: TimeBounds, report: Callable[[str], None] = SILENT) -> ChargeTools:
        return charge_tools(self.store, self.gateway, self._instruments(report), bounds=bounds, steps=self.steps)

    def _events(self, reconciler: Reconciler, report: Callable[[str], None]) -> StripeEventHandler:
        instruments = self._instruments(report)
        refunds = RefundStore(self.dynamodb, REFUNDS)
        return StripeEventHandler(
            reconciler=reconciler,
            charges=ChargeEventHandler(store=self.store, gateway=self.gateway, instruments=instruments),
            handle_refund=RefundEventHandler(refunds, StripeRefunds(self.gateway.client), instruments).handle,
        )

    def _reconciler(self, bounds: TimeBounds, report: Callable[[str], None]) -> Reconciler:
        def refund_canceled_order(_: Payment, __: FoundIntent) -> None:
            report("CanceledOrderRefunded")

        return self.reconciler(
            tools=self._tools(bounds, report),
            requires_action_seconds=REQUIRES_ACTION_SECONDS,
            bounds=bounds,
            refund_canceled_order=refund_canceled_order,
        )


def _handle(events: StripeEventHandler, event: Any) -> None:
    """What every receiver of an event does with it."""
    if parsed := parse_event(event):
        events.handle(parsed)
