"""The deployed payment service as a schedule runs it, and all that the simulation knows of its protocol.

Everything here changes with the protocol; world.py, which plays AWS, Stripe, customers and clocks, does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cancel_charge.cancel import CancelCharge, Cancellation
from onecharge.payments.ledger import Ledger
from onecharge.payments.settling import Settler
from receive_stripe_event.handled_events import HandledEvents
from reconcile_charges.progress import ProgressStore

from charge_order.charge import ChargeOrder
from onecharge.deliveries import Disposition
from onecharge.events import OrderPlacedEvent
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.time_bounds import TimeBounds
from onecharge.states import PaymentState
from receive_stripe_event.receive import OUTAGES, ReceiveStripeEvent
from reconcile_charges.reconcile import ReconcileCharges
from tests.silent import SILENT
from tests.simulation.dynamodb import Item
from tests.simulation.stripe import Event, PaymentIntent

BOUNDS = TimeBounds.of(30)
RECONCILE_BOUNDS = TimeBounds.of(120)
WEBHOOK_BOUNDS = TimeBounds.of(20)
CHARGES = "Charges"
RECONCILIATION = "Reconciliation"
STRIPE_EVENTS = "StripeEvents"
TABLES: Mapping[str, tuple[str, ...]] = {
    CHARGES: ("order_id", "attempt"),
    RECONCILIATION: ("name",),
    STRIPE_EVENTS: ("event_id",),
}
INDEXES: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
ANSWERS_CLIENT_SECRETS = False
"""Whether a customer's page has to ask for the client secret; today the row carries it (RowView.client_secret)."""
CONTRADICTIONS = {"ChargeUnknownToLedger", "RowUnknownToStripe", "LedgerDiffersFromStripe"}
"""Metrics that nothing may cause but rows that were lost."""

State = PaymentState
IN_WORK, PAID, DECLINED, CANCELED = (
    PaymentState.CLAIMED,
    PaymentState.SUCCEEDED,
    PaymentState.DECLINED,
    PaymentState.CANCELED,
)
MAY_BECOME: Mapping[State, set[State]] = {
    PaymentState.CLAIMED: set(PaymentState),
    **{terminal: {terminal} for terminal in PaymentState if terminal is not PaymentState.CLAIMED},
    PaymentState.REQUIRES_ACTION: {
        PaymentState.REQUIRES_ACTION,
        PaymentState.SUCCEEDED,
        PaymentState.DECLINED,
        PaymentState.CANCELED,
    },
}
"""What a row may be after each state."""

RowKey = tuple[str, ...]
"""A row's key attributes, as the table has them: order id and attempt."""


@dataclass(frozen=True)
class RowView:
    """What the invariants need to know of a row."""

    key: RowKey
    state: State
    lease: str | None
    """Differs with every claim: who may write. None if nobody holds the row."""
    lease_expires_at: int
    payment_intent_id: str | None
    money: tuple[int, str]
    client_secret: str | None
    """Handed out to whoever asks for the order, while it waits for its customer."""

    @classmethod
    def of(cls, item: Item) -> "RowView":
        waits = item["state"]["S"] == PaymentState.REQUIRES_ACTION
        return cls(
            key=(item["order_id"]["S"], item["attempt"]["N"]),
            state=PaymentState(item["state"]["S"]),
            lease=item["fencing_token"]["N"],
            lease_expires_at=int(item["lease_expires_at"]["N"]),
            payment_intent_id=item.get("payment_intent_id", {}).get("S"),
            money=(int(item["amount_minor"]["N"]), item["currency"]["S"].lower()),
            client_secret=item.get("client_secret", {}).get("S") if waits else None,
        )


def row_key_of(event: OrderPlacedEvent) -> RowKey:
    """The row that a delivery is about."""
    return event.data.order_id, str(event.data.attempt)


def row_key_of_intent(intent: PaymentIntent) -> RowKey:
    """The row that a PaymentIntent belongs to."""
    return intent.metadata["order_id"], intent.metadata["attempt"]


class PaymentService:
    """The functions, put together as their app.py does; each call runs in a worker of its own.

    `clock` gives the time as the worker that runs sees it. Mutations replace parts before anything runs.
    """

    def __init__(self, dynamodb: Any, stripe_client: Any, clock: Callable[[], int]) -> None:
        self.dynamodb, self.clock = dynamodb, clock
        self.charge_order = ChargeOrder(
            ledger=Ledger(dynamodb, CHARGES),
            gateway=StripeGateway(stripe_client),
            lease_seconds=BOUNDS.lease_seconds,
            clock=clock,
            logger=SILENT,
            count=SILENT,
        )
        self.canceller: type[CancelCharge] = CancelCharge
        self.settler: type[Settler] = Settler
        self.receiver: type[ReceiveStripeEvent] = ReceiveStripeEvent

    def charge(self, event: OrderPlacedEvent) -> Disposition:
        """A delivery of the order."""
        return self.charge_order(event)

    def cancel(self, event: OrderPlacedEvent) -> str:
        """What the customer who cancels is answered: "CANCELED", "PAID", or anything else for now."""
        cancel_charge = self.canceller(
            ledger=self.charge_order.ledger,
            gateway=self.charge_order.gateway,
            lease_seconds=BOUNDS.lease_seconds,
            clock=self.clock,
            logger=SILENT,
            count=SILENT,
        )
        answer = cancel_charge(event)
        return "CANCELED" if answer is Cancellation.CANCELED else answer

    def client_secret(self, event: OrderPlacedEvent) -> str | None:
        """What the customer's page is answered that asks for it; None if nothing waits for the customer."""
        raise NotImplementedError

    def receive(self, event: Event, report: Callable[[str], None]) -> bool:
        """A webhook; whether it was acknowledged."""
        receive = self.receiver(
            gateway=self.charge_order.gateway,
            settler=self._settler(WEBHOOK_BOUNDS, report),
            handled=HandledEvents(self.dynamodb, STRIPE_EVENTS),
            clock=self.clock,
            logger=SILENT,
            count=report,
        )
        try:
            receive(event)  # type: ignore[arg-type]  # As the SDK shows it.
        except OUTAGES:
            report("EventPutOff")
            return False
        return True

    def reconcile(self, report: Callable[[str], None], has_time: Callable[[], bool]) -> None:
        """One scheduled run of the reconciler."""
        run = ReconcileCharges(
            ledger=self.charge_order.ledger,
            gateway=self.charge_order.gateway,
            settler=self._settler(RECONCILE_BOUNDS, report),
            progress=ProgressStore(self.dynamodb, RECONCILIATION),
            clock=self.clock,
            has_time=has_time,
            logger=SILENT,
            count=report,
        )
        run()

    def forget_handled_events(self) -> None:
        """Which events were handled may be forgotten: it only saves work."""
        self.dynamodb.tables.pop(STRIPE_EVENTS, None)

    def _settler(self, bounds: TimeBounds, report: Callable[[str], None]) -> Settler:
        return self.settler(
            ledger=self.charge_order.ledger,
            gateway=self.charge_order.gateway,
            lease_seconds=bounds.lease_seconds,
            clock=self.clock,
            logger=SILENT,
            count=report,
        )
