"""The template with Messaging=fifo, deployed. What holds for both kinds is marked `on_both` where it is tested."""

import time
from uuid import uuid4

from local.observe import drain
from local.stack import Stack
from onecharge.orders.schema import StoredOrder
from tests.support.deployed_shop import DeployedShop, eventually
from tests.support.stacks import on_fifo

pytestmark = on_fifo


def duplicates(shop: DeployedShop, order_id: str) -> int:
    """How many deliveries of the order have found its payment finalized."""
    ended = "duplicate ignored: the attempt has ended"
    return sum(ended in line and order_id in line for line in shop.log().splitlines())


def event_of(order_id: str, stack: Stack) -> str:
    """The message of a stored order, as publish_events makes it."""
    key = {"order_id": {"S": order_id}}
    answer = stack.aws.client("dynamodb").get_item(TableName=stack.orders_table, Key=key)
    return StoredOrder.from_item(answer["Item"]).placed_event().model_dump_json(exclude_none=True)


def test_all_of_it_is_fifo(stack: Stack) -> None:
    """As the names say, which is all that the functions go by."""
    sqs, sns = stack.aws.client("sqs"), stack.aws.client("sns")
    queues = {url.rpartition("/")[2] for url in sqs.list_queues()["QueueUrls"]}
    assert (len(queues), [name for name in queues if not name.endswith(".fifo")]) == (7, [])
    topics = [topic["TopicArn"] for topic in sns.list_topics()["Topics"]]
    assert sum(arn.endswith(".fifo") for arn in topics) == 2
    assert all("Monitoring" in arn for arn in topics if not arn.endswith(".fifo"))  # Alarms are no events.


def test_twenty_deliveries_make_one_charge(shop: DeployedShop, stack: Stack) -> None:
    """Under deduplication ids of their own, as a redrive after five minutes has them: FIFO stops none of these."""
    order_id = shop.order().json()["order_id"]
    event = event_of(order_id, stack)
    shop.deliver(*[event] * 10, group=order_id)
    assert shop.decided_status(order_id) == "PAID"
    shop.deliver(*[event] * 10, group="another")
    assert eventually(lambda: duplicates(shop, order_id), lambda count: count >= 20) >= 20
    assert len(shop.charges(order_id)) == 1


def test_what_is_repeated_within_five_minutes_is_delivered_once(shop: DeployedShop, stack: Stack) -> None:
    """The second fence: ten messages under one deduplication id are one delivery."""
    order_id = shop.order().json()["order_id"]
    assert shop.decided_status(order_id) == "PAID"
    event = event_of(order_id, stack)
    shop.deliver(*[event] * 10, group=order_id, deduplication_id=str(uuid4()))
    assert eventually(lambda: duplicates(shop, order_id), bool) == 1
    time.sleep(5)
    assert duplicates(shop, order_id) == 1


def test_poison_is_in_the_dlq_and_its_group_goes_on(shop: DeployedShop, stack: Stack) -> None:
    """With its reason, at its first receive; what is behind it is handled."""
    drain(stack, stack.payments_dlq_url)
    order_id = shop.order().json()["order_id"]
    assert shop.decided_status(order_id) == "PAID"
    shop.deliver('{"specversion": "1.0"}', event_of(order_id, stack), group="with-poison")
    [message] = eventually(lambda: drain(stack, stack.payments_dlq_url), bool)
    assert message["Body"] == '{"specversion": "1.0"}'
    assert message["MessageAttributes"]["reason"]["StringValue"] == "type: missing"
    assert eventually(lambda: duplicates(shop, order_id), bool) == 1
