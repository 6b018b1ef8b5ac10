"""The drill: real causes bring the metrics of the deployed alarms beyond their thresholds, and what the runbook prints
fixes them.

The emulator evaluates no alarm on what the functions log, or on a queue. So each drill reads the deployed alarm, and
looks in the logs for the metric that it watches: of this namespace, name and dimensions.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from local.given_stripe import STRIPE_API_KEY
from local.observe import log_events, messages_in
from local.stack import Stack
from stripe_standin.faults import Fault
from tests.support.deployed_shop import PRICE, SKU, DeployedShop, eventually, forget_dead_letters
from tests.support.harness import PROJECT
from tests.support.runbook import command_of, run_printed
from tests.support.stacks import own_stack

pytestmark = [own_stack, pytest.mark.nightly]


class Drill:
    """Sees what the deployed alarms watch since the drill began, and runs what the runbook prints."""

    def __init__(self, stack: Stack, shop: DeployedShop, folder: Path) -> None:
        self.stack, self.shop = stack, shop
        self._folder, self._began = folder, time.time()
        (folder / "stack.json").write_text(stack.as_json())

    def goes_off(self, *names: str) -> bool:
        """Whether the metrics of these alarms of ours all reach their thresholds."""
        return eventually(lambda: [name for name in names if not self._reaches(name)], lambda silent: not silent) == []

    def _reaches(self, name: str) -> bool:
        alarm = self.alarm(name)
        watched = {
            "Namespace": alarm["Namespace"],
            "MetricName": alarm["MetricName"],
            "Dimensions": {each["Name"]: each["Value"] for each in alarm["Dimensions"]},
        }
        values = [value for metric, value in self._logged() if metric == watched]
        reached = sum(values) if alarm["Statistic"] == "Sum" else len(values)
        return bool(reached >= alarm["Threshold"])

    def alarm(self, name: str) -> Mapping[str, Any]:
        """The deployed alarm of this logical id."""
        cloudwatch = self.stack.aws.client("cloudwatch")
        [alarm] = cloudwatch.describe_alarms(AlarmNames=[f"{self.stack.stack_name}-{name}"])["MetricAlarms"]
        return dict(alarm)

    def _logged(self) -> Iterator[tuple[Mapping[str, Any], float]]:
        """Each metric with each of its values (Amazon CloudWatch User Guide, "Embedded metric format")."""
        group = f"/aws/lambda/{self.stack.stack_name}"
        for event in log_events(self.stack.aws.client("logs"), group, since_ms=int(self._began * 1000)):
            written = json.loads(event["message"]) if '"_aws"' in event["message"] else {"_aws": {}}
            for described in written["_aws"].get("CloudWatchMetrics", []):
                for names, metric in (
                    (each, metric) for each in described["Dimensions"] for metric in described["Metrics"]
                ):
                    identity = {
                        "Namespace": described["Namespace"],
                        "MetricName": metric["Name"],
                        "Dimensions": {name: written[name] for name in names},
                    }
                    yield from ((identity, value) for value in written[metric["Name"]])

    def is_paid(self, order_id: str) -> bool:
        """Whether it is, once its message's backoff has passed; and charged once."""
        status = eventually(lambda: self.shop.get(order_id).json()["status"], lambda status: status == "PAID")
        return status == "PAID" and len(self.shop.charges(order_id)) == 1

    def run(self, entry: str, begins: str, *, options: str = "", **values: str) -> str:
        """Run the command that the entry prints; `options` as `--yes`, which the entry says to add."""
        command, name = f"{command_of(entry, begins)} {options}", str(self._folder / "stack.json")
        return run_printed(command, self.stack.aws, cwd=self._folder, NAME=name, **values)


@pytest.fixture
def drill(stack: Stack, shop: DeployedShop, tmp_path: Path) -> Drill:
    return Drill(stack, shop, tmp_path)


def test_poison(drill: Drill, stack: Stack, tmp_path: Path) -> None:
    """A message that cannot be read is in the DLQ that the alarm watches, until somebody discards it."""
    forget_dead_letters(stack)
    [watched] = drill.alarm("PaymentsDlqNotEmpty")["Dimensions"]
    url = stack.aws.client("sqs").get_queue_url(QueueName=watched["Value"])["QueueUrl"]
    drill.shop.deliver('{"specversion": "1.0"}')
    assert eventually(lambda: messages_in(stack, url), bool) == 1
    reason = {"REASON": "type: missing", "WHY": "drill"}
    record = f"--record {tmp_path / 'discarded.jsonl'}"
    drill.run("DlqNotEmpty", "python -m ops --stack NAME dlq discard", options=record, **reason)
    assert messages_in(stack, url) == 0


def test_a_key_that_stripe_revoked(drill: Drill, shop: DeployedShop, stack: Stack, tmp_path: Path) -> None:
    """With the new key the order is charged, once."""
    new_key = f"sk_test_{uuid4().hex}"
    shop.stripe.assign_api_key(STRIPE_API_KEY, None)
    try:
        order_id = shop.order().json()["order_id"]
        assert drill.goes_off("StripeAccount")
        shop.stripe.assign_api_key(new_key)
        (tmp_path / "stripe-key.txt").write_text(new_key)
        drill.run("StripeRefuses", "aws secretsmanager put-secret-value", SECRET=stack.stripe_secret_id)
        assert drill.is_paid(order_id)
    finally:
        shop.stripe.assign_api_key(STRIPE_API_KEY)
        stack.aws.client("secretsmanager").put_secret_value(
            SecretId=stack.stripe_secret_id, SecretString=STRIPE_API_KEY
        )


@pytest.mark.parametrize(
    ("fault", "alarm"), [(Fault.UNAVAILABLE_503, "StripeServerErrors"), (Fault.DROP_BEFORE, "StripeNoAnswer")]
)
def test_an_outage_of_stripe(drill: Drill, shop: DeployedShop, fault: Fault, alarm: str) -> None:
    """Nothing is to be done but wait: the orders are charged when it is over, each once."""
    shop.stripe.add_fault(fault, times=None)
    orders = [shop.order().json()["order_id"] for _ in range(3)]
    assert drill.goes_off(alarm)
    shop.stripe.clear_faults()
    assert [order_id for order_id in orders if not drill.is_paid(order_id)] == []


def test_a_job_that_did_not_run(drill: Drill, stack: Stack) -> None:
    """What the alarm misses is reported by a run."""
    drill.run("ReconcileNotRun", "aws lambda invoke", FUNCTION=stack.reconcile_function)
    assert drill.goes_off("ReconcileNotRun"), "its threshold is one report; fewer are breaching"


def test_an_order_that_waits_for_a_person(drill: Drill, shop: DeployedShop, stack: Stack) -> None:
    """Stripe has refused it for an hour, and does not any more: the person lets it be charged again, once."""
    error = {"type": "invalid_request_error", "message": "Received unknown parameter", "code": "parameter_unknown"}
    shop.stripe.add_fault(Fault.RESPONSE, {"amount": str(3 * PRICE)}, times=None, status=400, error=error)
    order_id = shop.order(items=[{"sku": SKU, "quantity": 3}]).json()["order_id"]
    assert drill.goes_off("RequestRefused")
    stack.aws.client("dynamodb").update_item(
        TableName=stack.charges_table,
        Key={"order_id": {"S": order_id}},
        UpdateExpression="SET refused_at = :long_ago",
        ConditionExpression="attribute_exists(refused_at)",
        ExpressionAttributeValues={":long_ago": {"N": "1"}},
    )
    assert drill.goes_off("NeedsReview")
    shop.stripe.clear_faults()
    drill.run("ReviewWaits", "python -m ops --stack NAME review resolve", options="--yes", ORDER=order_id)
    assert drill.is_paid(order_id)


def test_what_no_command_ends(drill: Drill, shop: DeployedShop, stack: Stack) -> None:
    """A charge is disputed, a refund returned, a message differs from its row, an item cannot be published; nobody is
    charged again."""
    disputed, refunded, differing = (shop.placed("pm_card_visa", "PAID") for _ in range(3))
    shop.stripe.open_dispute(intent_of(shop, disputed))
    assert shop.refund(refunded, amount=500).status_code == 202
    made = eventually(lambda: refunds_of(shop, refunded), bool)
    shop.stripe.fail_refund(made[0])
    eventually(shop.stripe.deliver_webhooks, lambda statuses: set(statuses) == {200})
    send_again_with_another_amount(shop, stack, differing)
    damaged = {"order_id": {"S": f"ord_{uuid4().hex}"}, "status": {"S": "PENDING"}}
    stack.aws.client("dynamodb").put_item(TableName=stack.orders_table, Item=damaged)
    assert drill.goes_off("ChargeDisputed", "RefundFailed", "MessageDiffers", "Unpublishable")
    stack.aws.client("dynamodb").delete_item(TableName=stack.orders_table, Key={"order_id": damaged["order_id"]})
    assert len(shop.charges(differing)) == 1


def refunds_of(shop: DeployedShop, order_id: str) -> list[str]:
    """Stripe's ids of them."""
    return [each["id"] for each in shop.stripe.ledger().refunds if each["metadata"].get("order_id") == order_id]


def send_again_with_another_amount(shop: DeployedShop, stack: Stack, order_id: str) -> None:
    """The message that the order was published as, but for its amount."""
    [record] = json.loads((PROJECT / "events/charge_order/order_placed.json").read_text())["Records"]
    event = json.loads(record["body"])
    key = {"order_id": {"S": order_id}}
    item = stack.aws.client("dynamodb").get_item(TableName=stack.orders_table, Key=key)["Item"]
    event |= {"id": f"{order_id}:1:placed", "subject": order_id}
    event["data"] |= {
        "order_id": order_id,
        "amount_minor": 999_900,
        "customer_id": item["customer_id"]["S"],
        "placed_at": item["placed_at"]["S"],
    }
    shop.deliver(json.dumps(event))


def intent_of(shop: DeployedShop, order_id: str) -> str:
    """The id of the order's PaymentIntent."""
    intents = shop.stripe.ledger().payment_intents
    return next(str(each["id"]) for each in intents if each["metadata"].get("order_id") == order_id)
