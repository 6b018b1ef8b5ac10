"""The deployed payment service as a schedule runs it, and all that the simulation knows of its protocol.

Everything here changes with the protocol; world.py, which plays AWS, Stripe, customers and clocks, does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from charge_order.app import ORDER_EVENT, handle
from get_payment.payment import PaymentView, intent_to_confirm
from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.charge_rules import FrozenRequest, StripeIntent
from onecharge.payments.instruments import Instruments
from onecharge.payments.reconcile_checkpoint import ReconcileCheckpoint
from onecharge.payments.stripe_events import NewestReceived, Received, parse_event
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.sync import OUTAGES, sync
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.tools import Tools
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.consumer import Disposition
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import one_after_another
from reconcile.app import bounds_of
from reconcile.run import ReconcileRun
from stripe_standin.payment_intents import PaymentIntent
from tests.shop.builders import BOUNDS, PAYMENTS, PAYMENTS_STATE, TABLES
from tests.shop.dynamodb import Item, MemoryDynamoDB
from tests.shop.stripe import SdkObject
from tests.shop.tools import NO_RATE_LIMIT, tools_of
from tests.support.silent import SILENT

RECONCILE_BOUNDS = TimeBounds.of(240)
WEBHOOK_BOUNDS = TimeBounds.of(20)
PAGE_BOUNDS = TimeBounds.of(15)
"""How long each function may run, as template.yaml says."""
MESSAGE = ORDER_EVENT
NEVER_REPORTED = {
    *(f"Discrepancy.{each}" for each in ("PAID_TWICE", "REVERSED", "MONEY_DIFFERS", "WITHOUT_ROW")),
    *("RowUnknownToStripe", "CanceledOrderCharged", "UnattendedNeedsReview"),
}
"""Metrics of what should not happen."""
REPORTED_OF_LOST_ROWS = {"Discrepancy.LOST_ROW"}
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
    WAITS: {WAITS, IN_WORK, PAID, DECLINED, CANCELED, REVIEW},
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


def attempt_of_confirm(key: str) -> int:
    """The attempt whose confirm has this idempotency key."""
    return int(key.split(":")[2])


@dataclass(frozen=True)
class HurriedGateway(StripeGateway):
    """A lookup may run out of time before each of its pages."""

    hurry: Callable[[], bool] = lambda: False

    def find_payment_intents(
        self,
        request: FrozenRequest,
        *,
        now: int,
        is_time_known: bool = True,
        has_time: Callable[[], bool] = lambda: True,
    ) -> list[StripeIntent]:
        return super().find_payment_intents(
            request, now=now, is_time_known=is_time_known, has_time=lambda: has_time() and not self.hurry()
        )


class SimulatedPayments:
    """The functions, put together as their app.py does; each call runs in a worker of its own.

    `clock` gives the time as the worker that runs sees it. Mutations replace parts before anything runs.
    """

    def __init__(self, dynamodb: Any, stripe_client: Any, clock: Callable[[], int]) -> None:
        self.dynamodb, self.stripe_client, self.clock = dynamodb, stripe_client, clock
        self.bounds = BOUNDS
        self.store = PaymentStore(dynamodb, PAYMENTS)
        self.gateway: StripeGateway = HurriedGateway(stripe_client, parallel=one_after_another, hurry=self._is_late)
        self.replaced: dict[Callable[..., Any], Callable[..., Any]] = {}
        """The functions that a mutant replaces, wherever they are called, and what by."""
        self.rate = NO_RATE_LIMIT
        self.acknowledge: Callable[[Disposition], Disposition] = lambda disposition: disposition
        self.sync = sync
        self.alarmed: Callable[[], None] = dynamodb.io.alarmed
        """The line of an alarm is in the log."""

    def use_terms(self, version: int) -> None:
        """Of the deployment."""
        self.gateway = replace(self.gateway, terms_version=version)

    def _is_late(self) -> bool:
        return self.dynamodb.io.fault("lookup", ("out of time",)) is not None

    def handle(self, event: OrderPlacedEvent | CancelRequestedEvent) -> Disposition:
        """A delivery: of the order, or of the order service's request to cancel it."""
        return self.acknowledge(handle(event, replace(self._tools(self.bounds), rate=self.rate)))

    def client_secret(self, event: OrderPlacedEvent) -> str | None:
        """What the customer's page is answered that asks for it; None if nothing waits for the customer."""
        payment = self.store.read(event.data.order_id)
        intent = intent_to_confirm(payment, lambda: self.gateway) if payment else None
        return PaymentView.of(event.data.order_id, intent).client_secret

    def receive(self, event: Mapping[str, Any], report: Callable[[str], None]) -> bool:
        """A webhook, in an execution environment of its own; whether it was acknowledged."""
        tools = self._tools(WEBHOOK_BOUNDS, report)
        try:
            if parsed := parse_event(SdkObject(event)):
                NewestReceived(CheckpointStore(self.dynamodb, PAYMENTS_STATE, Received)).saw(parsed)
                self.sync(parsed, tools)
        except OUTAGES:
            report("WebhookDeferred")
            return False
        return True

    def reconcile(self, report: Callable[[str], None], seconds_left: Callable[[], float]) -> None:
        """One scheduled run of the reconciler."""
        bounds = bounds_of(RECONCILE_BOUNDS.function_timeout_seconds)
        ReconcileRun(
            make_tools=lambda: self._tools(bounds, report),
            instruments=self._instruments(report),
            state=CheckpointStore(self.dynamodb, PAYMENTS_STATE, ReconcileCheckpoint),
            received=CheckpointStore(self.dynamodb, PAYMENTS_STATE, Received),
            seconds_left=seconds_left,
            gauge=SILENT,
            parallel=one_after_another,
        ).run()

    def reconciler_has_run(self, at: int) -> None:
        """It did so before anything of the schedule happened, and so reads all of its events."""
        checkpoint = ReconcileCheckpoint.first(since=at, now=at)
        client: Any = MemoryDynamoDB(TABLES, tables=self.dynamodb.tables)
        CheckpointStore(client, PAYMENTS_STATE, ReconcileCheckpoint).write(checkpoint)

    def _instruments(self, report: Callable[[str], None] = SILENT) -> Instruments:
        def count(metric: str) -> None:
            report(metric)
            if isinstance(metric, Alarm):
                self.alarmed()

        return Instruments(self.clock, SILENT, count)

    def _tools(self, bounds: TimeBounds, report: Callable[[str], None] = SILENT) -> Tools:
        return tools_of(self.store, self.gateway, self._instruments(report), bounds=bounds)
