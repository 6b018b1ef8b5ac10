"""Redelivered orders: their rows are read in one request for the batch, and final ones are not claimed."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from charge_order.app import handle
from charge_order.redelivered import RowsOfRedelivered
from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.contract.events import Event as AnyEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import FrozenRequest
from onecharge.payments.charges.store import PaymentStore, refusal_of
from onecharge.payments.leases import HeldByAnother, new_lease_owner
from onecharge.payments.service import Charges
from onecharge.payments.stripe_responses import ResponseKind
from onecharge.runtime.consumer import BackOff, Batch, Disposition, Done
from testing.builders import BOUNDS, T0, order
from testing.charge_harness import ChargeHarness
from testing.fake_gateway import refused
from testing.harness import PATIENCE_SECONDS
from testing.payment_service import order_id
from testing.simulation.dynamodb import Faults, MemoryDynamoDB
from testing.simulation.service import AtOnce


@dataclass
class Recorder(MemoryDynamoDB):
    """DynamoDB in memory, which notes each request."""

    requests: list[str] = field(default_factory=list)

    def _before(self, operation: str, kinds: Sequence[str] = ("throttled",)) -> str | None:
        self.requests.append(operation)
        return super()._before(operation, kinds)


@pytest.fixture
def dynamodb() -> Recorder:
    return Recorder(keys={"payments": ("order_id",)})


@pytest.fixture
def service(dynamodb: Recorder) -> ChargeHarness:
    return ChargeHarness(client=dynamodb)


def placed(name: str, **changes: Any) -> OrderPlacedEvent:
    return OrderPlacedEvent.of(order(order_id=order_id(name), **changes), correlation_id="c")


def deliver(service: ChargeHarness, *events: AnyEvent, redelivered: bool) -> list[Disposition]:
    """A batch of these messages, as charge_order handles it."""
    batch = Batch(events, events if redelivered else (), at_once=len(events), seconds_left=30)
    seen = RowsOfRedelivered(service.store, service.instruments(), thread=AtOnce())(batch)
    charges = Charges(service.store, service.gateway, BOUNDS, service.instruments(), seen=seen)
    return [handle(event, charges) for event in events]


NAMES = [f"{number}" for number in range(10)]


def test_ten_duplicates_are_one_read_and_no_write(service: ChargeHarness, dynamodb: Recorder) -> None:
    """SQS delivers a whole batch again after an invocation that was cut off at its end."""
    events = [placed(name) for name in NAMES]
    assert deliver(service, *events, redelivered=False) == [Done()] * 10
    dynamodb.requests.clear()
    assert deliver(service, *events, redelivered=True) == [Done()] * 10
    assert dynamodb.requests == ["BatchGetItem"]
    assert service.counted.count("DuplicateIgnored") == 10
    assert len(service.stripe.intents) == 10


def test_messages_that_come_for_the_first_time_are_not_read_before(service: ChargeHarness, dynamodb: Recorder) -> None:
    """They are mostly no duplicates: the claim alone decides."""
    deliver(service, placed("a"), redelivered=False)
    assert dynamodb.requests == ["UpdateItem"] * 3


def test_an_order_that_was_not_finished_is_charged_when_it_comes_again(service: ChargeHarness) -> None:
    """Its row is no more than begun: the claim decides, as ever."""
    service.stripe.next("create", refused(ResponseKind.NO_ANSWER))
    assert deliver(service, placed("a"), redelivered=False) == [BackOff()]
    assert deliver(service, placed("a"), placed("b"), redelivered=True) == [Done(), Done()]
    assert len(service.stripe.intents) == 2


@pytest.mark.parametrize("state", list(PaymentState))
@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_what_is_read_says_what_the_claim_would_have_said(
    service: ChargeHarness, state: PaymentState, attempt: int
) -> None:
    """For each state of a row in its second attempt, and each attempt's message: or nothing, and the claim decides."""
    deliver(service, placed("a", attempt=2), redelivered=False)
    [item] = service.client.tables["payments"].values()
    item["state"] = {"S": state}
    [row] = service.store.read_batch([order_id("a")]).values()
    claim = service.store.claim(
        FrozenRequest.of(order(order_id=order_id("a"))),
        attempt=attempt,
        payment_method="pm_card_visa",
        correlation_id="c",
        owner=new_lease_owner(),
        now=T0 + 1000,
        lease_seconds=60,
    )
    read = refusal_of(row, attempt)
    assert isinstance(read, HeldByAnother) or read == claim


def test_a_read_that_fails_costs_no_order(service: ChargeHarness, dynamodb: Recorder) -> None:
    """Not answered, throttled, or in part: each delivery claims its row instead."""
    events = [placed(name) for name in NAMES]
    deliver(service, *events, redelivered=False)
    for fault in ("throttled", "unprocessed"):
        dynamodb.io = Faults(dynamodb_BatchGetItem=fault)
        assert deliver(service, *events, redelivered=True) == [Done()] * 10

    class Silent(Recorder):
        def batch_get_item(self, **_: Any) -> dict[str, Any]:
            raise ReadTimeoutError(endpoint_url="https://dynamodb")

    service.client = Silent(keys=dynamodb.keys, tables=dynamodb.tables)
    assert deliver(service, *events, placed("f"), redelivered=True) == [Done()] * 11
    assert len(service.stripe.intents) == 11


def test_a_read_that_hangs_holds_the_batch_up_for_a_moment(service: ChargeHarness, dynamodb: Recorder) -> None:
    """As long as it hangs no other is begun; the first that does not serves its batch again."""
    deliver(service, placed("a"), redelivered=False)
    is_reading, is_resolved = Event(), Event()

    class Hanging(Recorder):
        def batch_get_item(self, **given: Any) -> dict[str, Any]:
            reads.append(is_resolved.is_set())
            is_reading.set()
            assert is_resolved.wait(PATIENCE_SECONDS)
            return super().batch_get_item(**given)

    reads: list[bool] = []
    store = PaymentStore(Hanging(keys=dynamodb.keys, tables=dynamodb.tables), "payments")  # type: ignore[arg-type]  # Memory.
    batch: Batch[Any] = Batch([placed("a")], [placed("a")], at_once=1, seconds_left=30)
    with ThreadPoolExecutor(1) as thread:
        rows = RowsOfRedelivered(store, service.instruments(), thread=thread)
        assert rows(batch) == {}
        assert is_reading.wait(PATIENCE_SECONDS)
        assert rows(batch) == {}
        assert reads == [False]
        is_resolved.set()
        while not (seen := rows(batch)):
            pass
    assert list(seen) == [order_id("a")]
    assert reads[-1]
    assert service.counted.count("RedeliveredNotRead") >= 2


def test_a_row_that_cannot_be_understood_stops_no_other_order(service: ChargeHarness) -> None:
    """Its own delivery fails, and says why."""
    deliver(service, placed("a"), placed("b"), redelivered=False)
    service.client.tables["payments"][order_id("a"),]["state"] = {"S": "x"}
    assert deliver(service, placed("b"), redelivered=True) == [Done()]
    with pytest.raises(ValueError, match="is not a valid PaymentState"):
        deliver(service, placed("b"), placed("a"), redelivered=True)


def test_two_messages_of_one_order_are_one_key(service: ChargeHarness) -> None:
    """BatchGetItem refuses a key that is there twice; a message of another kind has none."""
    deliver(service, placed("a"), redelivered=False)
    cancel = CancelRequestedEvent.of(order(order_id=order_id("a")), correlation_id="c")
    assert deliver(service, placed("a"), placed("a"), cancel, redelivered=True)[:2] == [Done(), Done()]


def test_a_store_reads_what_is_there(service: ChargeHarness) -> None:
    """By order id; an order without a row is left out."""
    deliver(service, placed("a"), redelivered=False)
    store: PaymentStore = service.store
    assert list(store.read_batch([order_id("a"), order_id("b")])) == [order_id("a")]
