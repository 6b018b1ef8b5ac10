"""Dead letters on an SQS over HTTP: visibility timeouts, and on FIFO queues message groups and deduplication."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from stripe_standin.server import running_standin
from tests.contract.conftest import Endpoint
from tests.support.operated_stack import OperatedStack

POISON = "message: json_invalid"


@pytest.fixture(params=[False, True])
def operated(request: pytest.FixtureRequest, endpoint: Endpoint) -> Iterator[OperatedStack]:
    """A stack with standard queues, or with FIFO queues."""
    with running_standin() as standin:
        yield OperatedStack(standin.base_url, fifo=request.param, clients=endpoint.client)


def test_nothing_is_lost_on_the_way_there_and_back(operated: OperatedStack) -> None:
    """Dead, sent back, dead again, within five minutes: on a FIFO queue a repeated deduplication id would lose it."""
    order = operated.place()
    placed = order.placed_event()
    later = placed.data.model_copy(update={"placed_at": placed.data.placed_at + timedelta(days=2)})
    operated.send("PaymentsQueue", placed.model_copy(update={"data": later}).model_dump_json(), group="a")
    operated.charge()
    for _ in range(3):
        status, document, _ = operated.ops("dlq", "redrive", "--yes")
        assert (status, [each["outcome"] for each in document["messages"]]) == (0, ["redriven"])
        assert operated.ops("dlq", "list")[1]["messages"] == []
        operated.charge()
    [message] = operated.ops("dlq", "list")[1]["messages"]
    assert (message["reason"], message["dlq"]) == ("data.placed_at: in the future", "PaymentsDlq")


def test_many_are_redriven_and_charged_once(operated: OperatedStack) -> None:
    """Twelve orders, each of them twice in the DLQ; on FIFO, SQS shows ten of a group at most, and says so."""
    orders = [operated.place() for _ in range(12)]
    for order in orders * 2:
        operated.send("PaymentsDlq", operated.message(order), group="one")
    is_fifo = operated.stack.resource("PaymentsDlq").endswith(".fifo")
    seen = [len(operated.ops("dlq", "redrive", "--yes")[1]["messages"]) for _ in range(3)]
    assert seen == ([10, 10, 4] if is_fifo else [24, 0, 0])
    for _ in range(4):
        operated.charge()
    assert {operated.charges(order.order_id) for order in orders} == {1}


def test_reading_hides_nothing_for_long(operated: OperatedStack) -> None:
    """What was listed is visible immediately, to the next reader too. What a FIFO group hides is said."""
    for _ in range(15):
        operated.send("PaymentsDlq", "{", group="one", reason=POISON)
    is_fifo = operated.stack.resource("PaymentsDlq").endswith(".fifo")
    for _ in range(3):
        _, document, _ = operated.ops("dlq", "list")
        assert len(document["messages"]) == (10 if is_fifo else 15)
        assert [note.startswith("about 5 in PaymentsDlq") for note in document["not_seen"]] == [True] * is_fifo
