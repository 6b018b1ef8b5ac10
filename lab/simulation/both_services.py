"""Both services at work on one order: the deployed code of each, and messages that come late, twice, in any order.

    API ─► Orders, OrderRefunds ─stream, republish─► charge_order, refunds ─► Payments ─stream─► update_order ─► Orders

seams.py and refunding.py say what happens to the order.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab.simulation.service import ORDERS, RECONCILE_BOUNDS
from lab.simulation.world import World
from onecharge.contract.events import CancelRequestedEvent, Event, OrderPlacedEvent, PaymentOutcomeEvent, event_adapter
from onecharge.contract.refund_events import RefundOutcomeEvent, RefundRequestedEvent
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.republication import RepublishCheckpoint
from onecharge.orders.store import OrderStore
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.consumer import Disposition
from onecharge.runtime.dynamodb import from_item
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import one_after_another
from publish_events.mapping import order_event_from_item, payment_outcome_from_item, refund_requested_from_item
from republish.republish import Republisher, waiting_orders, waiting_refunds
from tests.shop.builders import PAYMENTS
from tests.shop.dynamodb import Item
from tests.support.silent import SILENT
from update_order.payment_outcomes import update_order
from update_order.refund_outcomes import update_refund

ORDER_REFUNDS, ORDERS_STATE = "OrderRefunds", "OrdersState"
_STREAMS: Mapping[str, Callable[[Item], Event | None]] = {
    ORDERS: order_event_from_item,
    ORDER_REFUNDS: refund_requested_from_item,
    PAYMENTS: payment_outcome_from_item,
}

_SHOWN = ("status", "state", "attempt", "refund_id", "amount_minor", "amount_refunded_minor", "revision")


class BothServicesWorld(World):
    """A world whose order service is the real one."""

    MESSAGE = event_adapter(
        OrderPlacedEvent, CancelRequestedEvent, RefundRequestedEvent, PaymentOutcomeEvent, RefundOutcomeEvent
    )

    def prepare(self) -> None:
        keys = {ORDERS: ("order_id",), ORDER_REFUNDS: ("order_id", "refund_id"), ORDERS_STATE: ("name",)}
        waiting = {ORDERS: ("waiting_shard", "waiting_since"), ORDER_REFUNDS: ("waiting_shard", "requested_at")}
        self.dynamodb.keys = {**self.dynamodb.keys, **keys}
        self.dynamodb.indexes = {**self.dynamodb.indexes, **{name: {"waiting": by} for name, by in waiting.items()}}
        client: Any = self.dynamodb
        self.order_store = self.released_orders = OrderStore(client, ORDERS)
        self.refund_store: OrderRefundStore = OrderRefundStore(client, ORDER_REFUNDS, ORDERS)
        self.writes: list[tuple[str, tuple[str, ...], Item]] = []  # Every version of every item, oldest first.
        self.bodies: list[str] = []  # Every message that was sent.

    def handle(self, event: Any) -> Disposition:
        given: dict[str, Any] = {"orders": self.order_store, "logger": SILENT, "count": self.count}
        match event:
            case PaymentOutcomeEvent():
                return update_order(event, **given)
            case RefundOutcomeEvent():
                return update_refund(event, refunds=self.refund_store, **given)
            case RefundRequestedEvent():
                return self.service.refund(event)
        return super().handle(event)

    def count(self, metric: str) -> None:
        self.met(metric)
        if isinstance(metric, Alarm):
            self.alarmed(metric.cause, {})

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        """The tables' streams: a record is published, or lost."""
        if new is None or table not in _STREAMS:
            return
        key = tuple(new[name]["S"] for name in self.dynamodb.keys[table])
        self.writes.append((table, key, dict(new)))
        self._note(f"{table}: { ({name: value for name, value in from_item(new).items() if name in _SHOWN}) }")
        event = _STREAMS[table](new)
        if event is None:
            return
        if self.faults_on and self.may_lose(event) and self.choices.happens(0.1):
            self._note(f"lost: {event.id}", fault="record lost")
        else:
            self.publish([event])

    def may_lose(self, event: Event) -> bool:
        """Whether the record of a stream may be lost."""
        return True

    def publish(self, events: Sequence[Event]) -> list[Any]:
        """SNS to SQS: as a Topic. Returns the events that were not accepted."""
        for event in events:
            self._send(event.model_dump_json())
        return []

    def _send(self, body: str, *, later_seconds: int = 0) -> None:
        self.bodies.append(body)
        super()._send(body, later_seconds=later_seconds)

    def come_again(self) -> None:
        """A message is delivered once more, although it was acknowledged."""
        if self.bodies:
            body = self.one_of(self.bodies)
            self._note(f"comes again: {body[:100]}", fault="late duplicate")
            self._send(body)

    def republish(self) -> None:
        """The scheduled publisher."""
        client, topic = self.dynamodb, self
        republisher = Republisher(
            sources=[waiting_orders(client, ORDERS), waiting_refunds(client, ORDER_REFUNDS)],  # type: ignore[arg-type]
            topic=topic,  # type: ignore[arg-type]
            checkpoints=CheckpointStore(client, ORDERS_STATE, RepublishCheckpoint),  # type: ignore[arg-type]
            clock=self.clock,
            logger=SILENT,
            count=self.count,
            parallel=one_after_another,
        )
        self.run_for("republish", lambda: republisher.run(lambda: True))

    def run_for(self, name: str, run: Callable[[], object]) -> None:
        """A worker without a message; what it raises is noted."""

        def tried() -> None:
            try:
                run()
                what = name
            except Exception as error:
                what = f"{name}: {getattr(error, 'kind', type(error).__name__)}"
            self._note(what)
            self.met(what)

        self.made += 1
        self.start(f"{name} {self.made}", tried, RECONCILE_BOUNDS)

    def ask_again(self, order_id: str) -> None:
        """The order's table and `republish` do it."""

    def finish(self) -> None:
        """The workers work until they are done, one after the other."""
        while self.workers:
            self._resume(self.workers[0])

    def put_back(self, tables: Mapping[str, int]) -> None:
        """Each table is as it was after so many writes of any; the runbook's command restores no `released_at`."""
        for table, until in tables.items():
            was = {key: item for of, key, item in self.writes[:until] if of == table}
            lost = set(self.restored_loses)
            self.dynamodb.tables[table] = {
                key: {name: value for name, value in item.items() if name not in lost} for key, item in was.items()
            }
