"""Each function of the deployed stack may do what it does, and nothing else."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from local.emulator import PERMISSIONS_LOG
from local.stack import Stack
from onecharge.payments.stripe_events import RECEIVED_STEP_SECONDS
from onecharge.runtime.dynamodb import shard_of
from stripe_standin.faults import Fault
from tests.support.deployed_shop import DECLINED_CARD, THREE_D_SECURE_CARD, DeployedShop, eventually
from tests.support.harness import PROJECT
from tests.support.stacks import own_stack

pytestmark = own_stack
_EVENTS_AGE_SECONDS = 900


class Right(NamedTuple):
    """A function may call this action on what the pattern matches; IAM's `*` and `?` are fnmatch's."""

    function: str
    action: str
    resource: str

    def allows(self, request: "Right") -> bool:
        return self[:2] == request[:2] and fnmatchcase(request.resource, self.resource)


def functions_of(stack: Stack) -> dict[str, str]:
    """The name of each function by its logical id."""
    resources = stack.aws.client("cloudformation").describe_stack_resources(StackName=stack.stack_name)
    return {
        each["LogicalResourceId"]: each["PhysicalResourceId"]
        for each in resources["StackResources"]
        if each["ResourceType"] == "AWS::Lambda::Function"
    }


def requests_of(stack: Stack) -> Iterator[tuple[Right, bool]]:
    """What the stack's functions requested so far, as the emulator recorded it while it enforced the roles (see
    local/enforcing_emulator.py); and whether it was allowed."""
    logical_ids = {physical: logical for logical, physical in functions_of(stack).items()}
    for line in Path(stack.aws_log).with_name(PERMISSIONS_LOG).read_text().splitlines():
        decision = json.loads(line)
        function = decision["principal"].rsplit("/", 1)[-1]
        # A test's subscribers are a stack of their own, on the same emulator.
        if function.startswith(f"{stack.stack_name}-"):
            yield Right(logical_ids[function], decision["action"], decision["resource"]), decision["is_allowed"]


def rights_of(stack: Stack) -> Iterator[Right]:
    """What the deployed roles allow: the inline policies are all that there is."""
    iam, functions = stack.aws.client("iam"), stack.aws.client("lambda")
    for logical_id, name in functions_of(stack).items():
        role = functions.get_function_configuration(FunctionName=name)["Role"].rsplit("/", 1)[-1]
        assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == [], logical_id
        for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]:
            document = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
            for statement in document["Statement"]:
                assert statement["Effect"] == "Allow", logical_id
                actions, resources = (
                    [given] if isinstance(given, str) else given
                    for given in (statement["Action"], statement["Resource"])
                )
                yield from (Right(logical_id, *each) for each in product(actions, resources))


# AWS Lambda Developer Guide, "Configuring CloudWatch log groups" (ours exists, so it is not created), "Creating and
# configuring an Amazon SQS event source mapping"; Amazon DynamoDB Developer Guide, "IAM policy to allow an AWS Lambda
# function to access DynamoDB stream records".
_BY_LAMBDA = {
    "logs": ("CreateLogStream", "PutLogEvents"),
    "sqs": ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes"),
    "dynamodb": ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"),
}


def rights_lambda_uses(stack: Stack) -> Iterator[Right]:
    """What Lambda does with a function's role, by itself: the emulator does not use the role for this."""
    functions = stack.aws.client("lambda")
    for logical_id, name in functions_of(stack).items():
        configuration = functions.get_function_configuration(FunctionName=name)
        log_group = configuration["LoggingConfig"]["LogGroup"]
        [group] = stack.aws.client("logs").describe_log_groups(logGroupNamePrefix=log_group)["logGroups"]
        mappings = functions.list_event_source_mappings()["EventSourceMappings"]
        sources = [each["EventSourceArn"] for each in mappings if f":function:{name}:" in f"{each['FunctionArn']}:"]
        used = [("logs", group["arn"]), *((source.split(":")[2], source) for source in sources)]
        for service, resource in used:
            yield from (Right(logical_id, f"{service}:{action}", resource) for action in _BY_LAMBDA[service])


def test_every_right_is_used_and_every_request_is_allowed(shop: DeployedShop, stack: Stack) -> None:
    """By the functions as they are deployed, on every path that needs a right of its own; or by Lambda itself.

    The emulator enforces the roles, so a right that is missing is a request that was refused.
    """
    # The webhook stores the time of an event that is a minute newer than what it, or reconcile, has stored.
    shop.stripe.advance_clock(RECEIVED_STEP_SECONDS)
    webhooks_tell_a_payment_and_a_failed_refund(shop, stack)
    # Before reconcile takes these events. From then on events are as old as those that it reads.
    shop.stripe.advance_clock(-RECEIVED_STEP_SECONDS - _EVENTS_AGE_SECONDS)
    provocations = [
        an_order_is_paid_with_another_card,
        messages_are_poison_or_wait,
        a_cancellation_waits_for_stripe,
        scheduled_runs_find_what_waits_or_is_lost,
    ]
    with ThreadPoolExecutor(4) as threads:
        for provoked in [threads.submit(provoke, shop, stack) for provoke in provocations]:
            provoked.result()
    shop.stripe.advance_clock(_EVENTS_AGE_SECONDS)
    expected, rights = set(rights_lambda_uses(stack)), set(rights_of(stack))
    assert expected <= rights, "Lambda could not do its part"

    def unused() -> list[str]:
        requests = {each for each, _ in requests_of(stack)}
        return sorted(" ".join(right) for right in rights - expected if not any(map(right.allows, requests)))

    assert eventually(unused, lambda left: not left) == []
    assert [each for each, is_allowed in requests_of(stack) if not is_allowed] == []


def test_no_right_is_for_everything(stack: Stack) -> None:
    """No action and no resource has a wildcard, but the streams of a log group."""
    for right in rights_of(stack):
        assert "*" not in right.action
        assert right.resource.count("*") <= right.resource.endswith(":*") <= right.action.startswith("logs:")


# ------------------------------------------------------------ what uses the rights


def invoke(stack: Stack, function: str) -> None:
    answer = stack.aws.client("lambda").invoke(FunctionName=function, Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


def item(**attributes: str) -> dict[str, Any]:
    return {name: {"S": value} for name, value in attributes.items()}


def set_attributes(stack: Stack, table: str, key: dict[str, Any], **attributes: str) -> None:
    stack.aws.client("dynamodb").update_item(
        TableName=table,
        Key=key,
        UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in attributes),
        ExpressionAttributeNames={f"#{name}": name for name in attributes},
        ExpressionAttributeValues={f":{name}": {"S": value} for name, value in attributes.items()},
    )


def an_hour_ago() -> str:
    """A republication is due at this age, whatever an earlier run has published."""
    return datetime.fromtimestamp(time.time() - 3600, UTC).isoformat()


def is_shown(shop: DeployedShop, order_id: str, status: str) -> None:
    """The order, or one of its refunds, comes to this status."""

    def statuses() -> set[str]:
        order = shop.get(order_id).json()
        return {str(order["status"]), *(each["status"] for each in order.get("refunds", ()))}

    assert status in eventually(statuses, lambda seen: status in seen)


def fail_refund(shop: DeployedShop, refund_id: str) -> None:
    """Its bank returns it."""
    for refund in shop.stripe.ledger().refunds:
        if refund["metadata"].get("refund_id") == refund_id:
            shop.stripe.fail_refund(refund["id"])


def webhooks_tell_a_payment_and_a_failed_refund(shop: DeployedShop, stack: Stack) -> None:
    """Before, the customer's page has asked how to authenticate."""
    order_id = shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")
    assert shop.client_secret(order_id)
    shop.stripe.authenticate(shop.intents(order_id)[0]["id"])
    shop.stripe.deliver_webhooks()
    is_shown(shop, order_id, "PAID")
    refund_id = str(shop.refund(order_id, amount=500).json()["refund_id"])
    is_shown(shop, order_id, "SUCCEEDED")
    fail_refund(shop, refund_id)
    shop.stripe.deliver_webhooks()


def an_order_is_paid_with_another_card(shop: DeployedShop, stack: Stack) -> None:
    """And listed: the index only names orders."""
    order_id = shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    assert shop.post(f"{order_id}/payments", payment_method="pm_card_visa").status_code == 202
    assert shop.decided_status(order_id) == "PAID"
    assert shop.http.get(f"{stack.api_url}/orders", timeout=90).json()["orders"]


def messages_are_poison_or_wait(shop: DeployedShop, stack: Stack) -> None:
    """For Stripe, or for an order that is not there. A damaged item can never be published."""
    sqs = stack.aws.client("sqs")
    for queue in (stack.payments_queue_url, stack.order_updates_queue_url, stack.refunds_queue_url):
        sqs.send_message(QueueUrl=queue, MessageBody="poison")
    shop.stripe.add_fault(Fault.UNAVAILABLE_503, times=3)
    assert shop.order().status_code == 202
    for queue, sample in (
        (stack.order_updates_queue_url, "update_order/payment_succeeded"),
        (stack.order_updates_queue_url, "update_order/refund_succeeded"),
        (stack.refunds_queue_url, "refund_charge/refund_requested"),
    ):
        [record] = json.loads((PROJECT / "events" / f"{sample}.json").read_text())["Records"]
        sqs.send_message(QueueUrl=queue, MessageBody=record["body"])
    damaged = item(order_id=f"ord_{uuid4().hex}", status="PENDING")
    stack.aws.client("dynamodb").put_item(TableName=stack.orders_table, Item=damaged)


def a_cancellation_waits_for_stripe(shop: DeployedShop, stack: Stack) -> None:
    """And is continued from its message."""
    order_id = shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    path = f"/v1/payment_intents/{shop.intents(order_id)[0]['id']}"
    for method, of_intent in (("GET", path), ("POST", f"{path}/cancel")):
        shop.stripe.add_fault(Fault.UNAVAILABLE_503, times=6, method=method, path=of_intent)
    assert shop.post(f"{order_id}/cancel").status_code == 202


def scheduled_runs_find_what_waits_or_is_lost(shop: DeployedShop, stack: Stack) -> None:
    """republish: an order, and a refund. reconcile: a customer who has paid at the bank, a refund that failed, and the
    row of its payment, which was lost."""
    waiting, order_id = shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION"), shop.placed("pm_card_visa", "PAID")
    pending, failed = [str(shop.refund(order_id, amount=500).json()["refund_id"]) for _ in range(2)]
    eventually(lambda: {each["status"] for each in shop.get(order_id).json()["refunds"]}, lambda s: s == {"SUCCEEDED"})
    set_attributes(stack, stack.orders_table, item(order_id=waiting), waiting_since=an_hour_ago())
    refunds, again = stack.aws.physical_id(stack.stack_name, "OrderRefundsTable"), {"requested_at": an_hour_ago()}
    again |= {"status": "PENDING", "waiting_shard": shard_of(order_id)}
    set_attributes(stack, refunds, item(order_id=order_id, refund_id=pending), **again)
    time.sleep(1)  # A round begins at a whole second: not before this one.
    invoke(stack, stack.republish_function)

    dynamodb, state = stack.aws.client("dynamodb"), stack.aws.physical_id(stack.stack_name, "PaymentsStateTable")
    dynamodb.delete_item(TableName=stack.charges_table, Key=item(order_id=order_id))
    shop.stripe.authenticate(shop.intents(waiting)[0]["id"])
    fail_refund(shop, failed)
    an_hour = {"version": {"N": "1"}, "since": {"N": str(int(time.time()) - 3600)}}
    dynamodb.put_item(TableName=state, Item={**item(name="reconcile"), **an_hour})
    invoke(stack, stack.reconcile_function)
    is_shown(shop, waiting, "PAID")
    is_shown(shop, order_id, "FAILED")
