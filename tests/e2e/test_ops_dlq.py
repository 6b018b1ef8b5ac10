"""On the deployed stack: a dead letter is sent back, and its order is charged once all the same."""

from local.stack import Stack
from onecharge.orders.schema import StoredOrder
from tests.support.deployed_shop import DeployedShop, eventually, forget_dead_letters
from tests.support.ops_command import Operator
from tests.support.stacks import on_both, own_stack

pytestmark = own_stack


def message_of(order_id: str, stack: Stack) -> str:
    """The message of a stored order, as publish_events makes it."""
    key = {"order_id": {"S": order_id}}
    answer = stack.aws.client("dynamodb").get_item(TableName=stack.orders_table, Key=key)
    return StoredOrder.from_item(answer["Item"]).placed_event().model_dump_json(exclude_none=True)


def send_to_dlq(stack: Stack, body: str, group: str) -> None:
    """As SQS moves it there: without a reason."""
    url = stack.payments_dlq_url
    place = {"MessageGroupId": group, "MessageDeduplicationId": f"test-{group}"} if url.endswith(".fifo") else {}
    stack.aws.client("sqs").send_message(QueueUrl=url, MessageBody=body, **place)


def redriven(operator: Operator) -> list[str]:
    document = operator.run("dlq", "redrive", "--yes").document
    return [each["outcome"] for each in document["messages"]]


@on_both
def test_a_redriven_order_whose_row_was_lost_is_charged_once(
    shop: DeployedShop, stack: Stack, operator: Operator
) -> None:
    """Its order is PAID: nothing changes. Once its row is lost and its status too, the redrive restores both."""
    forget_dead_letters(stack)
    order_id = str(shop.order().json()["order_id"])
    assert shop.decided_status(order_id) == "PAID"
    send_to_dlq(stack, message_of(order_id, stack), order_id)
    assert redriven(operator) == ["redriven"]
    assert len(shop.charges(order_id)) == 1

    dynamodb = stack.aws.client("dynamodb")
    dynamodb.delete_item(TableName=stack.charges_table, Key={"order_id": {"S": order_id}})
    dynamodb.update_item(
        TableName=stack.orders_table,
        Key={"order_id": {"S": order_id}},
        # No stream publishes this status: only the redriven message asks for the payment.
        UpdateExpression="SET #status = :waiting",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":waiting": {"S": "REQUIRES_ACTION"}},
    )
    send_to_dlq(stack, message_of(order_id, stack), f"{order_id}-again")
    assert redriven(operator) == ["redriven"]
    status = eventually(lambda: str(shop.get(order_id).json()["status"]), lambda status: status == "PAID")
    assert (status, len(shop.charges(order_id))) == ("PAID", 1)
