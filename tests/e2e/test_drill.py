"""The drill: alarms go off for their real causes, and what the runbook prints fixes them.

tests/support/alarms.py evaluates the deployed alarms with shortened periods. An outage of Stripe needs no command: it
passes, and so does the alarm.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from local.given_stripe import STRIPE_API_KEY
from local.stack import Stack
from stripe_standin.faults import Fault
from tests.support.alarms import Alarms
from tests.support.harness import PROJECT
from tests.support.runbook import command_of, run_printed
from tests.support.shop import PATIENCE_SECONDS, PRICE, SKU, Shop, eventually
from tests.support.stacks import on_drilled

pytestmark = on_drilled

ALARM, OK = "ALARM", "OK"
_BY_MINUTES = 12
"""A speed for alarms of several minutes in a row: each lasts 5 seconds."""


@pytest.fixture
def stack_file(stack: Stack, tmp_path: Path) -> str:
    """What `--stack` takes."""
    path = tmp_path / "stack.json"
    path.write_text(stack.as_json())
    return str(path)


@pytest.fixture
def drill(stack: Stack, shop: Shop, stack_file: str, tmp_path: Path) -> "Drill":
    return Drill(stack, shop, stack_file, tmp_path)


class Drill:
    """Watches the alarms, and runs what the runbook prints."""

    def __init__(self, stack: Stack, shop: Shop, stack_file: str, folder: Path) -> None:
        self.stack, self.shop = stack, shop
        self.alarms = Alarms(stack.aws, stack.stack_name)
        self._stack_file, self._folder = stack_file, folder

    def goes_off(self, *names: str) -> bool:
        """Whether these alarms all go off, each in its time: one may be over before another's cause has happened."""
        silent = set(names)
        for states in self._evaluations():
            silent -= {name for name in silent if states[name] == ALARM}
            if not silent:
                return True
        print("never went off:", *sorted(silent))
        return False

    def is_over(self, *names: str) -> bool:
        """Whether these alarms are all over at once."""
        return any({states[name] for name in names} == {OK} for states in self._evaluations())

    def _evaluations(self) -> Iterator[dict[str, str]]:
        """The states of all alarms, twice a second for as long as a test is patient."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            yield self.alarms.evaluate()
            time.sleep(0.5)

    def is_paid(self, order_id: str) -> bool:
        """Whether it is, once its message's backoff has passed; and charged once."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.shop.get(order_id).json()["status"] != "PAID" and time.monotonic() < deadline:
            time.sleep(0.5)
        return self.shop.get(order_id).json()["status"] == "PAID" and len(self.shop.charges(order_id)) == 1

    def run(self, entry: str, begins: str, *, options: str = "", **values: str) -> str:
        """Run the command that the entry prints; `options` as `--yes`, which the entry says to add."""
        command = f"{command_of(entry, begins)} {options}"
        return run_printed(command, self.stack.aws, cwd=self._folder, NAME=self._stack_file, **values)

    def write(self, name: str, text: str) -> None:
        """A file beside whoever runs the commands."""
        (self._folder / name).write_text(text)


def test_what_cannot_be_evaluated_here_is_known(drill: Drill) -> None:
    """Nothing measures these on this machine; all other alarms are evaluated."""
    assert drill.alarms.without_source() == [
        "ApiServerErrors",
        "OrderUpdatesQueueAge",
        "PaymentsQueueAge",
        "PublisherLag",
        "RefundsQueueAge",
    ]


def empty_dlqs(stack: Stack) -> None:
    """Of what other tests have left there: the composite alarm is of all DLQs."""
    sqs = stack.aws.client("sqs")
    for url in sqs.list_queues()["QueueUrls"]:
        if "dlq" in url.lower():
            sqs.purge_queue(QueueUrl=url)


def test_poison(drill: Drill, stack: Stack, tmp_path: Path) -> None:
    """A message that cannot be read is in the DLQ: the alarm lasts until somebody discards it."""
    empty_dlqs(stack)
    assert drill.is_over("PaymentsDlqNotEmpty", "MessagesGivenUp")
    drill.shop.deliver('{"specversion": "1.0"}')
    assert drill.goes_off("PaymentsDlqNotEmpty", "MessagesGivenUp")
    reason = {"REASON": "type: missing", "WHY": "drill"}
    record = f"--record {tmp_path / 'discarded.jsonl'}"
    drill.run("DlqNotEmpty", "python -m ops --stack NAME dlq discard", options=record, **reason)
    assert drill.is_over("PaymentsDlqNotEmpty", "MessagesGivenUp")


@pytest.mark.nightly
def test_a_key_that_stripe_revoked(drill: Drill, shop: Shop, stack: Stack) -> None:
    """One page, and no second one for what it explains; with the new key the order is charged, once."""
    new_key = f"sk_test_{uuid4().hex}"
    shop.stripe.assign_api_key(STRIPE_API_KEY, None)
    try:
        order_id = shop.order().json()["order_id"]
        assert drill.goes_off("StripeAccount", "StripeRefuses")
        assert drill.alarms.states()["OrdersNotCharged"] == OK
        shop.stripe.assign_api_key(new_key)
        drill.write("stripe-key.txt", new_key)
        drill.run("StripeRefuses", "aws secretsmanager put-secret-value", SECRET=stack.stripe_secret_arn)
        assert drill.is_paid(order_id)
        assert drill.is_over("StripeAccount", "StripeRefuses")
    finally:
        shop.stripe.assign_api_key(STRIPE_API_KEY)
        stack.aws.client("secretsmanager").put_secret_value(
            SecretId=stack.stripe_secret_arn, SecretString=STRIPE_API_KEY
        )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fault", "alarm"), [(Fault.UNAVAILABLE_503, "StripeServerErrors"), (Fault.DROP_BEFORE, "StripeNoAnswer")]
)
def test_an_outage_of_stripe(drill: Drill, shop: Shop, stack: Stack, fault: Fault, alarm: str) -> None:
    """Nothing is to be done but wait: the orders are charged when it is over, each once."""
    drill.alarms = Alarms(stack.aws, stack.stack_name, speed=_BY_MINUTES)
    shop.stripe.add_fault(fault, times=None)
    orders = [shop.order().json()["order_id"] for _ in range(10)]
    assert drill.goes_off(alarm, "StripeUnavailable")
    shop.stripe.clear_faults()
    assert [order_id for order_id in orders if not drill.is_paid(order_id)] == []
    assert drill.is_over(alarm, "StripeUnavailable")


@pytest.mark.parametrize(
    ("alarm", "function"), [("ReconcileNotRun", "reconcile_function"), ("RepublishNotRun", "republish_function")]
)
def test_a_job_that_did_not_run(drill: Drill, stack: Stack, alarm: str, function: str) -> None:
    """Nothing is reported, which is what is wrong."""
    assert drill.goes_off(alarm, "JobsNotRun")
    drill.run("ReconcileNotRun", "aws lambda invoke", FUNCTION=getattr(stack, function))
    assert drill.is_over(alarm)


def test_an_order_that_waits_for_a_person(drill: Drill, shop: Shop, stack: Stack) -> None:
    """Stripe has refused it for an hour, and does not any more: the person lets it be charged again, once."""
    error = {"type": "invalid_request_error", "message": "Received unknown parameter", "code": "parameter_unknown"}
    shop.stripe.add_fault(Fault.RESPONSE, {"amount": str(3 * PRICE)}, times=None, status=400, error=error)
    order_id = shop.order(items=[{"sku": SKU, "quantity": 3}]).json()["order_id"]
    assert drill.goes_off("RequestRefused", "ReleaseIsWrong")
    stack.aws.client("dynamodb").update_item(
        TableName=stack.charges_table,
        Key={"order_id": {"S": order_id}},
        UpdateExpression="SET refused_at = :long_ago",
        ConditionExpression="attribute_exists(refused_at)",
        ExpressionAttributeValues={":long_ago": {"N": "1"}},
    )
    assert drill.goes_off("NeedsReview", "ReviewWaits")
    shop.stripe.clear_faults()
    drill.run("ReviewWaits", "python -m ops --stack NAME review resolve", options="--yes", ORDER=order_id)
    assert drill.is_paid(order_id)
    assert drill.is_over("NeedsReview", "ReviewWaits")


def test_what_no_command_ends(drill: Drill, shop: Shop, stack: Stack) -> None:
    """A charge is disputed, a refund returned, a message differs from its row, an item cannot be published.

    Each alarm is over once nothing has been counted for its periods; nobody is charged again.
    """
    disputed, refunded, differing = (shop.placed("pm_card_visa", "PAID") for _ in range(3))
    shop.stripe.open_dispute(intent_of(shop, disputed))
    assert shop.refund(refunded, amount=500).status_code == 202
    made = eventually(lambda: refunds_of(shop, refunded), bool)
    shop.stripe.fail_refund(made[0])
    eventually(shop.stripe.deliver_webhooks, lambda statuses: set(statuses) == {200})
    send_again_with_another_amount(shop, stack, differing)
    damaged = {"order_id": {"S": f"ord_{uuid4().hex}"}, "status": {"S": "PENDING"}}
    stack.aws.client("dynamodb").put_item(TableName=stack.orders_table, Item=damaged)
    ended_by_time = ("ChargeDisputed", "RefundFailed", "MessageDiffers", "Unpublishable")
    assert drill.goes_off(*ended_by_time, "PersonDecides", "MessagesGivenUp")
    stack.aws.client("dynamodb").delete_item(TableName=stack.orders_table, Key={"order_id": damaged["order_id"]})
    assert len(shop.charges(differing)) == 1
    assert drill.is_over(*ended_by_time)


def refunds_of(shop: Shop, order_id: str) -> list[str]:
    """Stripe's ids of them."""
    return [each["id"] for each in shop.stripe.ledger().refunds if each["metadata"].get("order_id") == order_id]


def send_again_with_another_amount(shop: Shop, stack: Stack, order_id: str) -> None:
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


def intent_of(shop: Shop, order_id: str) -> str:
    """The id of the order's PaymentIntent."""
    intents = shop.stripe.ledger().payment_intents
    return next(str(each["id"]) for each in intents if each["metadata"].get("order_id") == order_id)
