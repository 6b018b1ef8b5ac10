"""charge_order as template.yaml deploys it, in one process, over moto's AWS and the stand-in."""

import time
from datetime import UTC, datetime

import boto3

from charge_order.app import ChargeOrderParts
from onecharge.contract.events import OrderPlaced
from tests.shop.builders import SHOP, order
from tests.support.harness import Sample, create_table, load_template, number_of


def placed(name: str) -> OrderPlaced:
    """The order of this name, placed a minute ago."""
    return order(order_id=f"ord_{name:0>32}", placed_at=datetime.fromtimestamp(int(time.time()) - 60, UTC))


class PaymentFunctions:
    """The function's parts, with the environment that template.yaml gives it."""

    def __init__(self, base_url: str, sample: Sample) -> None:
        self.sample = sample
        create_table(boto3.client("dynamodb"), "PAYMENTS_TABLE", "PaymentsTable")
        secret = boto3.client("secretsmanager").create_secret(Name="stripe", SecretString="rk_test_functions")
        variables = load_template()["Resources"]["ChargeOrderFunction"]["Properties"]["Environment"]["Variables"]
        given = {name: number_of(name) or name for name in variables}
        queues = [name for name in variables if name.endswith("_URL")]
        given |= {name: boto3.client("sqs").create_queue(QueueName=name)["QueueUrl"] for name in queues}
        given |= {"SHOP": SHOP, "STRIPE_API_BASE": base_url, "PROFILE": "sandbox", "STRIPE_SECRET_ARN": secret["ARN"]}
        self.charge_order = ChargeOrderParts(given)
