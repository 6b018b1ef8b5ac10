"""Two usual workers alongside ours, on the local stack only: the same messages, each with its own account at Stripe.

    naive.py        get, charge, put
    powertools.py   Powertools' idempotency
    template.yaml   either of them, configured as AWS advises: queue, DLQ, table, subscription

They have a ledger of their own, since they charge the same orders. So the console shows what each of them charged.
"""

import hashlib
import json
import sysconfig
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from local.emulator import Emulator
from local.stack import Stack
from stripe_standin.admin import Ledger

_DEPLOY_SECONDS = 60


@dataclass(frozen=True)
class UsualWorker:
    """One of them. Its queue, its table and its stack have its name."""

    name: str
    title: str
    key_attribute: str
    """Of its table."""

    @property
    def account(self) -> str:
        return f"acct_{self.name}"

    @property
    def api_key(self) -> str:
        return f"sk_test_{self.name}"

    def charges(self, ledger: Ledger) -> Mapping[str, int]:
        """How often it has charged, by order id; 0 for an order that it has not charged."""
        return Counter(each.order_id for each in ledger.charges if each.order_id and each.account == self.account)

    def queue_url(self, aws: Emulator) -> str:
        return str(aws.client("sqs").get_queue_url(QueueName=self.name)["QueueUrl"])

    def forget(self, aws: Emulator, order_id: str) -> None:
        """Delete what its table has of the order: its own item, or Powertools', whose id ends with the key's hash."""
        dynamodb = aws.client("dynamodb")
        hashed = hashlib.md5(json.dumps(order_id).encode(), usedforsecurity=False).hexdigest()
        for item in dynamodb.scan(TableName=self.name)["Items"]:
            key = item[self.key_attribute]
            if key["S"] == order_id or key["S"].endswith(hashed):
                dynamodb.delete_item(TableName=self.name, Key={self.key_attribute: key})


def is_queued(aws: Emulator, queue_url: str, order_id: str) -> bool:
    """Whether a message of the order is in the queue, visible or not. ministack tells it without a receive."""
    url = f"{aws.endpoint_url}/_ministack/sqs/messages"
    return order_id in requests.get(url, params={"QueueUrl": queue_url}, timeout=60).text


USUAL_WORKERS = (
    UsualWorker("naive", "get, charge, put", "order_id"),
    UsualWorker("powertools", "Powertools", "id"),
)


def usual_workers_of(stack: Stack) -> Sequence[UsualWorker]:
    """Those that are deployed beside the stack."""
    stacks = stack.aws.client("cloudformation").describe_stacks()["Stacks"]
    return [worker for worker in USUAL_WORKERS if any(each["StackName"] == worker.name for each in stacks)]


def deploy_usual_workers(stack: Stack) -> None:
    """Deploy both beside the stack, whose Stripe has to be the stand-in. Raises botocore's errors."""
    folder = Path(__file__).parent
    cloudformation: Any = stack.aws.client("cloudformation")
    for worker in USUAL_WORKERS:
        stack.stripe.assign_api_key(worker.api_key, worker.account, cards_of="acct_standin")
        parameters = {
            "Name": worker.name,
            "Code": (folder / f"{worker.name}.py").read_text(),
            "KeyAttribute": worker.key_attribute,
            "OrderEventsTopicArn": stack.order_events_topic_arn,
            "StripeApiBase": stack.stripe_api_base,
            "StripeApiKey": worker.api_key,
            "Packages": sysconfig.get_path("purelib"),
        }
        cloudformation.create_stack(
            StackName=worker.name,
            TemplateBody=(folder / "template.yaml").read_text(),
            Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        )
    for worker in USUAL_WORKERS:
        created = cloudformation.get_waiter("stack_create_complete")
        created.wait(StackName=worker.name, WaiterConfig={"Delay": 1, "MaxAttempts": _DEPLOY_SECONDS})
