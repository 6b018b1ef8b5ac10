"""The scheduled jobs as they are deployed, over a table that has so much to do among so much that is done."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.rows.database import Item, Meter, client_of
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.schema import Keeping, new_order_item
from onecharge.orders.transitions import waits
from onecharge.orders.waiting import WaitingIndex
from onecharge.payments.stripe_events import StripeEvents
from onecharge.runtime.aws import BATCH_SIZE
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.parallel import Threads
from onecharge.runtime.topics import Topic
from place_due_orders.app import AT_ONCE as DOCUMENTS_AT_ONCE
from place_due_orders.due import PlaceDueOrders
from place_due_orders.store import DueDocumentStore
from reconcile.app import AT_ONCE as ROWS_AT_ONCE
from reconcile.app import STEP_SECONDS
from reconcile.checkpoint import ReconcileCheckpoint
from reconcile.reconcile import ReconcileCharges
from republish.republish import RepublishCheckpoint, RepublishOrders
from republish.waiting import WaitingOrders
from testing.order_ids import ORDER_IDS
from testing.payment_service import PaymentService
from testing.silent import SILENT

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
EPOCH = int(NOW.timestamp())
AN_HOUR = 3600
TABLES = {
    "orders": "OrdersTable",
    "payments": "PaymentsTable",
    "documents": "DueDocumentsTable",
    "checkpoints": "RepublicationTable",
    "reconciliation": "ReconciliationTable",
    "events": "StripeEventsTable",
    "refunds": "RefundsTable",
}


@dataclass(frozen=True)
class _Payable:
    amount_minor: int = 2500
    currency: str = "EUR"
    payment_method: str = "pm_card_visa"
    fingerprint: str = "f" * 64


@dataclass(frozen=True)
class Cost:
    """What a job has consumed for each order that it worked on."""

    orders: int
    seconds: float
    requests: float
    read_units: float
    write_units: float

    @property
    def orders_a_second(self) -> float | None:
        """None where what it is the difference of took longer than the difference."""
        return self.orders / self.seconds if self.seconds > 0 else None


def order_id(number: int) -> str:
    return f"ord_{number:032x}"


# ---------------------------------------------------------------- what is in the tables


def orders(rows: int, work: int) -> Iterator[Item]:
    """So many orders, of which some wait since an hour; the others are PAID."""
    every = rows // work
    for number in range(rows):
        is_waiting = number % every == 0 and number // every < work
        placed = NOW - timedelta(hours=1 if is_waiting else 24 + number % 1000)
        item = dict(
            new_order_item(
                order_id(number), f"cus_{number % 997}", _Payable(), correlation_id=f"c-{number}", now=placed
            )
        )
        if not is_waiting:
            keeping = Keeping.of(order_id(number), waits=waits(OrderStatus.PAID), at=placed)
            item |= to_item({"status": OrderStatus.PAID, keeping.sets: keeping.value})
            del item[keeping.removes]
        yield item


def documents(rows: int, work: int) -> Iterator[Item]:
    """The documents of eight days, of which some of today are still due."""
    every = rows // work
    for number in range(rows):
        is_due = number % every == 0 and number // every < work
        day = NOW.date() - timedelta(0 if is_due else number % 8)
        yield to_item(
            {
                "due_date": day.isoformat(),
                "document_id": f"inv-{number}",
                "customer_id": f"cus_{number % 997}",
                "amount_minor": 2500,
                "currency": "EUR",
                "payment_method": "pm_card_visa",
                "state": "DUE" if is_due else "ORDERED",
                **({} if is_due else {"order_id": order_id(number)}),
            }
        )


def finished_payments(url: str, rows: int) -> Iterator[Item]:
    """Copies of one that the payment service has charged."""
    client = client_of(url)
    PaymentService(client, SILENT).charge("c")
    [stored] = client.scan(TableName="payments", Limit=1)["Items"]
    for number in range(rows):
        yield {**stored, "order_id": {"S": f"ord_f{number:031x}"}}


# ---------------------------------------------------------------- the jobs


def republish(url: str, work: int) -> Cost:
    """Each waiting order is published; SNS answers at once."""
    client = client_of(url)
    published: list[Mapping[str, Any]] = []

    class Sns:
        def publish_batch(self, *, TopicArn: str, PublishBatchRequestEntries: list[Mapping[str, Any]]) -> Any:
            published.extend(PublishBatchRequestEntries)
            return {"Successful": [{"Id": each["Id"]} for each in PublishBatchRequestEntries], "Failed": []}

    run = RepublishOrders(
        sources=[WaitingOrders(client, "orders")],
        topic=Topic(Sns(), "topic", SILENT, SILENT),  # type: ignore[arg-type]  # The one method.
        checkpoints=CheckpointStore(client, "checkpoints", RepublishCheckpoint),
        clock=lambda: EPOCH,
        has_time=lambda: True,
        logger=SILENT,
        count=SILENT,
        parallel=Threads(BATCH_SIZE),
    )
    cost = _metered(client, run, work)
    assert len(published) == work, len(published)
    return cost


def nothing_due(url: str, work: int) -> Cost:
    """A round of republish in which nothing is due, a moment later; the cost of an order that waits on."""
    client = client_of(url)
    run = RepublishOrders(
        sources=[WaitingOrders(client, "orders")],
        topic=Topic(SILENT, "topic", SILENT, SILENT),
        checkpoints=CheckpointStore(client, "checkpoints", RepublishCheckpoint),
        clock=lambda: EPOCH + 60,
        has_time=lambda: True,
        logger=SILENT,
        count=SILENT,
    )
    return _metered(client, run, work)


def pending(url: str, work: int) -> Cost:
    """What `python -m ops pending` reads of the orders, before it explains the oldest of them."""
    client = client_of(url)
    found: list[Any] = []
    cost = _metered(
        client, lambda: found.extend(WaitingIndex(client, "orders", "placed_at").entries(until=EPOCH)), work
    )
    assert len(found) == work, len(found)
    return cost


def reconcile_rows(url: str, work: int) -> Cost:
    """The rows of workers that died after Stripe had charged: each is finalized. Stripe answers at once."""
    client = client_of(url)
    payments = PaymentService(client, SILENT)
    names = [f"a{number:06x}" for number in range(work)]
    for name in names:
        payments.crash_after("confirm", name)
    payments.stripe.events.clear()
    payments.now += AN_HOUR
    cost = _metered(client, _reconcile(client, payments), work)
    assert {payments.row(name).state for name in names} == {PaymentState.SUCCEEDED}
    return cost


def reconcile_events(url: str, work: int) -> Cost:
    """Stripe's events of what is finished already: each is compared with its row, and nothing is left to do."""
    client = client_of(url)
    payments = PaymentService(client, SILENT)
    for number in range(work):
        payments.charge(f"b{number:06x}")
    payments.now += AN_HOUR
    return _metered(client, _reconcile(client, payments), len(payments.stripe.events))


def _reconcile(client: Any, payments: PaymentService) -> ReconcileCharges:
    return ReconcileCharges(
        store=payments.store,
        events=StripeEvents(payments.gateway.client),
        handler=payments.events,
        checkpoints=CheckpointStore(client, "reconciliation", ReconcileCheckpoint),
        seconds_left=lambda: 10 * STEP_SECONDS,
        step_seconds=STEP_SECONDS,
        instruments=payments.instruments,
        gauge=SILENT,
        at_once=ROWS_AT_ONCE,
        parallel=Threads(ROWS_AT_ONCE),
    )


def due(url: str, work: int) -> Cost:
    """Each document that is due becomes an order; without what the run reads again, which `done_documents` has."""
    first, again = _run_due(url, work), _run_due(url, 0)
    return Cost(
        work,
        first.seconds - again.seconds,
        (first.requests - again.requests) / work,
        (first.read_units - again.read_units) / work,
        (first.write_units - again.write_units) / work,
    )


def done_documents(url: str, rows: int) -> Cost:
    """A run when everything of the last eight days is ordered: for each document, which it reads again."""
    began = time.perf_counter()
    again = _run_due(url, 0)
    return Cost(rows, time.perf_counter() - began, again.requests / rows, again.read_units / rows, 0)


def _run_due(url: str, work: int) -> "_Consumed":
    client = client_of(url)
    counted: list[str] = []
    run = PlaceDueOrders(
        documents=DueDocumentStore(client, "documents", "orders"),
        order_ids=lambda: ORDER_IDS,
        clock=lambda: NOW,
        has_time=lambda: True,
        run_id="run",
        logger=SILENT,
        count=counted.append,
        at_once=DOCUMENTS_AT_ONCE,
        parallel=Threads(DOCUMENTS_AT_ONCE),
    )
    meter, began = Meter.of(client), time.perf_counter()
    run()
    assert counted == ["DueOrderPlaced"] * work, counted[:10]
    return _Consumed(time.perf_counter() - began, meter.requests, meter.read_units, meter.write_units)


@dataclass(frozen=True)
class _Consumed:
    seconds: float
    requests: int
    read_units: float
    write_units: float


def _metered(client: Any, job: Callable[[], object], work: int) -> Cost:
    meter, began = Meter.of(client), time.perf_counter()
    job()
    seconds = time.perf_counter() - began
    return Cost(work, seconds, meter.requests / work, meter.read_units / work, meter.write_units / work)
