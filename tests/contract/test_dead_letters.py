"""Dead letters on an SQS over HTTP: visibility timeouts, and on FIFO queues message groups and deduplication."""

from collections.abc import Iterator
from functools import partial

import boto3
import pytest

from local.emulator import CREDENTIALS
from stripe_standin.server import running_standin
from tests.contract.conftest import Endpoint
from tests.support.operated_stack import OperatedStack

POISON = "message: json_invalid"
MOVED = "received too often"
KINDS = [
    False,
    True,
]


@pytest.fixture(params=KINDS)
def operated(request: pytest.FixtureRequest, ministack: Endpoint) -> Iterator[OperatedStack]:
    """A stack with standard queues, or with FIFO queues."""
    clients = partial(
        boto3.client,
        endpoint_url=ministack.url,
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
    with running_standin() as standin:
        yield OperatedStack(standin.base_url, fifo=request.param, clients=clients)


def test_nothing_is_lost_on_the_way_there_and_back(operated: OperatedStack) -> None:
    """Dead, sent back, dead again, within five minutes: on a FIFO queue a repeated deduplication id would lose it."""
    operated.send("PaymentsQueue", "{", group="a")
    operated.charge()
    for _ in range(3):
        status, document, _ = operated.ops("dlq", "redrive", "--reason", POISON, "--force", "--yes")
        assert (status, document["redriven"]) == (0, 1)
        _, listed, _ = operated.ops("dlq", "list")
        assert listed["reasons"] == []
        operated.charge()
    _, listed, _ = operated.ops("dlq", "list", "--messages")
    [message] = listed["messages"]
    assert (message["reason"], message["dlq"]) == (POISON, "PaymentsDlq")


def test_all_of_one_group_are_redriven_and_charged_once(operated: OperatedStack) -> None:
    """Twelve orders, more than SQS shows of a group at once, each of them twice in the DLQ."""
    orders = [operated.place() for _ in range(12)]
    for order in orders * 2:
        operated.send("PaymentsDlq", operated.message(order), group="one")
    _, document, _ = operated.ops("dlq", "redrive", "--reason", MOVED, "--yes")
    assert (document["redriven"], document["left"], document["notes"]) == (24, 0, [])
    for _ in range(4):
        operated.charge()
    assert {operated.charges(order.order_id) for order in orders} == {1}


def test_reading_hides_nothing_for_long(operated: OperatedStack) -> None:
    """What was listed is visible at once, to the next reader too."""
    for number in range(5):
        operated.send("PaymentsDlq", "{", group=str(number), reason=POISON)
    for _ in range(3):
        _, document, _ = operated.ops("dlq", "list")
        assert (document["reasons"][0]["messages"], document["notes"]) == (5, [])


def test_what_a_group_hides_is_said(operated: OperatedStack) -> None:
    """On FIFO, behind the first ten of a group: counted, not shown. A standard queue shows all."""
    for _ in range(15):
        operated.send("PaymentsDlq", "{", group="one", reason=POISON)
    _, document, _ = operated.ops("dlq", "list")
    shown = document["reasons"][0]["messages"]
    is_fifo = operated.stack.resource("PaymentsDlq").endswith(".fifo")
    assert shown == (10 if is_fifo else 15)
    assert len(document["notes"]) == is_fifo
    if is_fifo:
        assert document["notes"][0].startswith("PaymentsDlq: about 5 messages were not seen")
