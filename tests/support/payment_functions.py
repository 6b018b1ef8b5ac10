"""The payment service's deployed functions in one process, over moto's AWS and the stand-in."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import boto3
import stripe

from charge_order.app import ChargeOrderParts
from local.given_stripe import STRIPE_WEBHOOK_SECRET
from onecharge.contract.events import Event, OrderPlaced, OrderPlacedEvent
from stripe_standin.admin import StandInAdmin
from tests.shop.builders import SHOP, order
from tests.support.harness import LambdaContext, Sample, create_table, load_template, number_of

TABLES = {
    "PAYMENTS_TABLE": "PaymentsTable",
    "PAYMENTS_STATE_TABLE": "PaymentsStateTable",
}
EVENTS_AGE_SECONDS = 900
"""The scheduled run reads events that are some minutes old: Stripe's clock is behind."""
DAY = 24 * 3600
API_KEY = "rk_test_functions"


def placed(name: str, *, card: str = "pm_card_visa", age_seconds: int = 60) -> OrderPlaced:
    """The order of this name, placed so long ago."""
    at = datetime.fromtimestamp(int(time.time()) - age_seconds, UTC)
    return order(order_id=f"ord_{name:0>32}", payment_method=card, placed_at=at)


class PaymentFunctions:
    """The environment of each function, the rows, and the stand-in. What waits for 3-D Secure is given up at once."""

    def __init__(self, base_url: str, sample: Sample) -> None:
        self.stripe, self.sample = StandInAdmin(base_url), sample
        self.stripe.advance_clock(-EVENTS_AGE_SECONDS)
        self.dynamodb, self._base_url = boto3.client("dynamodb"), base_url
        self.charge_order = ChargeOrderParts(self.environment("charge_order"))
        for table, resource in TABLES.items():
            create_table(self.dynamodb, table, resource)

    def environment(self, function: str) -> dict[str, str]:
        """What template.yaml gives the function."""
        resource = "".join(word.title() for word in function.split("_")) + "Function"
        variables = load_template()["Resources"][resource]["Properties"]["Environment"]["Variables"]
        secrets = boto3.client("secretsmanager")
        given = {
            **{name: name for name in variables},
            **{name: number for name in variables if (number := number_of(name))},
            **{
                name: boto3.client("sqs").create_queue(QueueName=name)["QueueUrl"]
                for name in variables
                if name.endswith("_URL")
            },
            **{
                name: boto3.client("sns").create_topic(Name=name)["TopicArn"]
                for name in variables
                if name.endswith("_TOPIC_ARN")
            },
            "SHOP": SHOP,
            "REQUIRES_ACTION_SECONDS": "0",
            "STRIPE_API_BASE": self._base_url,
            "PROFILE": "sandbox",
            "STRIPE_SECRET_ARN": secrets.create_secret(Name=f"{function} {uuid4()}", SecretString=API_KEY)["ARN"],
        }
        if "STRIPE_WEBHOOK_SECRET_ARN" in variables:
            webhook = secrets.create_secret(Name=f"{function} webhook", SecretString=STRIPE_WEBHOOK_SECRET)
            given["STRIPE_WEBHOOK_SECRET_ARN"] = webhook["ARN"]
        return given

    def consume(self, consumer: Any, *events: Event) -> None:
        """Deliver the events in one batch; none fails."""
        [record] = self.sample("charge_order/order_placed")["Records"]
        records = [
            record | {"messageId": str(index), "body": event.model_dump_json()} for index, event in enumerate(events)
        ]
        assert consumer.consume({"Records": records}, LambdaContext())["batchItemFailures"] == []

    def charge(self, *orders: OrderPlaced) -> None:
        """Deliver orders to charge_order."""
        self.consume(self.charge_order.consumer, *(OrderPlacedEvent.of(each, correlation_id="c") for each in orders))

    def refund_by_hand(self, order_id: str) -> None:
        """A part of the order, in Stripe's Dashboard."""
        intents = self.stripe.ledger().payment_intents
        [intent] = [each for each in intents if each["metadata"].get("order_id") == order_id]
        client = stripe.StripeClient("sk_test_by_hand", base_addresses={"api": self._base_url})
        client.v1.refunds.create({"payment_intent": intent["id"], "amount": 50})

    def change_row(self, order_id: str, **attributes: str | int) -> None:
        """As if that much time had passed, or somebody had."""
        values = {f":{name}": {"N" if isinstance(to, int) else "S": str(to)} for name, to in attributes.items()}
        self.dynamodb.update_item(
            TableName="PAYMENTS_TABLE",
            Key={"order_id": {"S": order_id}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in attributes),
            ExpressionAttributeNames={f"#{name}": name for name in attributes},
            ExpressionAttributeValues=values,
        )

    def state(self, order_id: str) -> str:
        """Of its payment's row."""
        item = self.dynamodb.get_item(TableName="PAYMENTS_TABLE", Key={"order_id": {"S": order_id}})["Item"]
        return str(item["state"]["S"])

    def events(self, *types: str) -> list[Mapping[str, Any]]:
        """Stripe's, the oldest first."""
        return [event for event in self.stripe.events() if event["type"] in types]
