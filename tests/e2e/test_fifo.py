"""The same template with Messaging=fifo, deployed: the same orders come to the same, and once."""

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from local.demo import drain
from local.stack import Stack, running_stack
from onecharge.orders.schema import StoredOrder
from tests.e2e.test_due_payments import calendar as calendar
from tests.e2e.test_due_payments import (
    test_each_document_is_charged_once_however_often_the_job_runs as test_each_document_is_charged_once_however_often_the_job_runs,  # noqa: E501
)
from tests.e2e.test_life_of_an_order import (
    test_a_declined_order_is_paid_with_another_card as test_a_declined_order_is_paid_with_another_card,
)
from tests.e2e.test_life_of_an_order import (
    test_an_order_that_is_not_paid_is_canceled as test_an_order_that_is_not_paid_is_canceled,
)
from tests.e2e.test_life_of_an_order import (
    test_whichever_wins_the_race_the_answer_is_true as test_whichever_wins_the_race_the_answer_is_true,
)
from tests.e2e.test_nothing_is_lost import (
    test_an_order_that_was_never_published_is_charged as test_an_order_that_was_never_published_is_charged,
)
from tests.e2e.test_orders import Shop, eventually
from tests.e2e.test_refunds import (
    test_two_parts_are_refunded_and_a_third_is_too_much as test_two_parts_are_refunded_and_a_third_is_too_much,
)
from tests.e2e.test_webhooks import customer as customer
from tests.e2e.test_webhooks import (
    test_an_order_paid_at_the_bank_is_paid_by_webhook as test_an_order_paid_at_the_bank_is_paid_by_webhook,
)


@pytest.fixture(scope="module")
def fifo_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The template with FIFO topics and queues, deployed to an emulator of its own."""
    with running_stack(work_dir=tmp_path_factory.mktemp("fifo-stack"), messaging="fifo") as stack:
        yield stack


@pytest.fixture(scope="module")
def stack(fifo_stack: Stack) -> Stack:
    """The claims that are imported above are made of this stack too."""
    return fifo_stack


class FifoShop(Shop):
    """A shop whose messages have a group and a deduplication id."""

    def deliver(self, *bodies: str, group: str = "g", deduplication_id: str | None = None) -> None:
        sqs = self.stack.aws.client("sqs")
        for body in bodies:
            sqs.send_message(
                QueueUrl=self.stack.payments_queue_url,
                MessageBody=body,
                MessageGroupId=group,
                MessageDeduplicationId=deduplication_id or str(uuid4()),
            )

    def duplicates(self, order_id: str) -> int:
        """How many deliveries of the order have found it settled."""
        return sum("duplicate of a finalized payment" in line and order_id in line for line in self.log().splitlines())


@pytest.fixture
def shop(fifo_stack: Stack) -> FifoShop:
    return FifoShop(fifo_stack)


def event_of(order_id: str, stack: Stack) -> str:
    """The message of a stored order, as publish_events makes it."""
    key = {"order_id": {"S": order_id}}
    answer = stack.aws.client("dynamodb").get_item(TableName=stack.orders_table, Key=key)
    return StoredOrder.from_item(answer["Item"]).placed_event().model_dump_json(exclude_none=True)


def test_all_of_it_is_fifo(fifo_stack: Stack) -> None:
    """As the names say, which is all that the functions go by."""
    sqs, sns = fifo_stack.aws.client("sqs"), fifo_stack.aws.client("sns")
    queues = [url.rpartition("/")[2] for url in sqs.list_queues()["QueueUrls"]]
    standard = [name for name in queues if not name.endswith(".fifo")]
    assert (len(queues), len(standard)) == (8, 1)
    assert "PublishEventsDlq" in standard[0]
    assert all(topic["TopicArn"].endswith(".fifo") for topic in sns.list_topics()["Topics"])


@pytest.mark.parametrize(
    ("payment_method", "status", "charges"),
    [("pm_card_visa", "PAID", 1), ("pm_card_visa_chargeDeclinedInsufficientFunds", "PAYMENT_DECLINED", 0)],
)
def test_an_order_comes_to_what_its_card_allows(shop: FifoShop, payment_method: str, status: str, charges: int) -> None:
    """From HTTP through both topics and queues, and back."""
    order_id = shop.order(payment_method=payment_method).json()["order_id"]
    assert shop.settled_status(order_id) == status
    assert [charge.amount_minor for charge in shop.charges(order_id)] == [2500] * charges


def test_twenty_deliveries_make_one_charge(shop: FifoShop, fifo_stack: Stack) -> None:
    """Under deduplication ids of their own, as a redrive after five minutes has them: FIFO stops none of these."""
    order_id = shop.order().json()["order_id"]
    event = event_of(order_id, fifo_stack)
    shop.deliver(*[event] * 10, group=order_id)
    assert shop.settled_status(order_id) == "PAID"
    shop.deliver(*[event] * 10, group="another")
    assert eventually(lambda: shop.duplicates(order_id), lambda count: count >= 20) >= 20
    assert len(shop.charges(order_id)) == 1


def test_what_is_repeated_within_five_minutes_is_delivered_once(shop: FifoShop, fifo_stack: Stack) -> None:
    """The second fence: ten messages under one deduplication id are one delivery."""
    order_id = shop.order().json()["order_id"]
    assert shop.settled_status(order_id) == "PAID"
    event = event_of(order_id, fifo_stack)
    shop.deliver(*[event] * 10, group=order_id, deduplication_id=str(uuid4()))
    assert eventually(lambda: shop.duplicates(order_id), bool) == 1
    time.sleep(5)
    assert shop.duplicates(order_id) == 1


def test_poison_is_in_the_dlq_and_its_group_goes_on(shop: FifoShop, fifo_stack: Stack) -> None:
    """With its reason, at its first receive; what stands behind it is handled."""
    drain(fifo_stack, fifo_stack.payments_dlq_url)
    order_id = shop.order().json()["order_id"]
    assert shop.settled_status(order_id) == "PAID"
    shop.deliver('{"specversion": "1.0"}', event_of(order_id, fifo_stack), group="with-poison")
    [message] = eventually(lambda: drain(fifo_stack, fifo_stack.payments_dlq_url), bool)
    assert message["Body"] == '{"specversion": "1.0"}'
    assert message["MessageAttributes"]["reason"]["StringValue"] == "type: missing"
    assert eventually(lambda: shop.duplicates(order_id), bool) == 1
