"""Restricted Stripe keys: each function, with a key of its own, needs exactly the permissions that are documented.

The deployed applications run over moto's AWS and the stand-in, which enforces the permissions. A missing one fails,
since a request is refused; and one that is listed without need fails, since nothing uses it.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

import charge_order.app
import payment_questions.app  # optional: cancel | authentication
import reconcile.app
import refund_charge.app  # optional: refunds
import stripe_webhook.app  # optional: webhook
from local.given_stripe import STRIPE_WEBHOOK_SECRET
from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.server import running_standin
from local.stripe_standin.webhooks import signature
from onecharge.contract.cancellations import CancelRequestedEvent
from onecharge.contract.events import Event, OrderPlaced, OrderPlacedEvent
from onecharge.contract.refunds import RefundRequested, RefundRequestedEvent  # optional: refunds
from onecharge.payments.stripe_permissions import PERMISSIONS, Permission, without_included
from testing.builders import order
from testing.harness import PROJECT, LambdaContext, Sample, create_table, load_template

TABLES = {
    "PAYMENTS_TABLE": "PaymentsTable",
    "REFUNDS_TABLE": "RefundsTable",  # optional: refunds
    "STRIPE_EVENTS_TABLE": "StripeEventsTable",  # optional: webhook
    "RECONCILIATION_TABLE": "ReconciliationTable",
}
EVENTS_AGE_SECONDS = 900
"""The scheduled run reads events that are some minutes old: Stripe's clock is behind."""
DAY = 24 * 3600


def placed(name: str, *, card: str = "pm_card_visa", age_seconds: int = 60) -> OrderPlaced:
    at = datetime.fromtimestamp(int(time.time()) - age_seconds, UTC)
    return order(order_id=f"ord_{name:0>32}", payment_method=card, placed_at=at)


class World:
    """The payment service's functions, each with its key; the rows, and Stripe's ledger."""

    def __init__(self, base_url: str, sample: Sample) -> None:
        self.stripe, self.sample = StandInAdmin(base_url), sample
        self.stripe.advance_clock(-EVENTS_AGE_SECONDS)
        self.dynamodb, self._base_url = boto3.client("dynamodb"), base_url
        self.charging = charge_order.app.Application(self.environment("charge_order")).consumer
        for table, resource in TABLES.items():
            create_table(self.dynamodb, table, resource)

    def environment(self, function: str) -> dict[str, str]:
        """What template.yaml gives the function, with a secret that holds its own key."""
        resource = "".join(word.title() for word in function.split("_")) + "Function"
        variables = load_template()["Resources"][resource]["Properties"]["Environment"]["Variables"]
        self.stripe.restrict_api_key(f"rk_test_{function}", PERMISSIONS[function])
        secrets = boto3.client("secretsmanager")
        given = {
            **{name: name for name in variables},
            **{name: "30" for name in variables if name.endswith("_SECONDS")},
            **{
                name: boto3.client("sqs").create_queue(QueueName=name)["QueueUrl"]
                for name in variables
                if name.endswith("_URL")
            },
            "REQUIRES_ACTION_SECONDS": "0",
            "STRIPE_API_BASE": self._base_url,
            "STRIPE_SECRET_ARN": secrets.create_secret(Name=function, SecretString=f"rk_test_{function}")["ARN"],
        }
        # optional: webhook
        if "STRIPE_WEBHOOK_SECRET_ARN" in variables:
            webhook = secrets.create_secret(Name=f"{function} webhook", SecretString=STRIPE_WEBHOOK_SECRET)
            given["STRIPE_WEBHOOK_SECRET_ARN"] = webhook["ARN"]
        # end optional
        return given

    def consume(self, consumer: Any, *events: Event) -> None:
        """Deliver the events in one batch; none fails."""
        [record] = self.sample("charge_order/order_placed")["Records"]
        records = [record | {"messageId": event.id, "body": event.model_dump_json()} for event in events]
        assert consumer.consume({"Records": records}, LambdaContext()) == {"batchItemFailures": []}

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
        item = self.dynamodb.get_item(TableName="PAYMENTS_TABLE", Key={"order_id": {"S": order_id}})["Item"]
        return item["state"]["S"]

    def events(self, *types: str) -> list[Mapping[str, Any]]:
        return [event for event in self.stripe.events() if event["type"] in types]


def charge(world: World) -> None:
    """Fresh orders, one that is a day old, one that waits for 3-D Secure, one that is canceled."""
    orders = [placed("a"), placed("b", age_seconds=DAY), placed("c", card="pm_card_threeDSecure2Required")]
    world.consume(world.charging, *(OrderPlacedEvent.of(each, correlation_id="c") for each in orders))
    world.consume(world.charging, CancelRequestedEvent.of(placed("d"), correlation_id="c"))
    assert [world.state(placed(name).order_id) for name in "abcd"] == [
        *("SUCCEEDED", "SUCCEEDED", "REQUIRES_ACTION", "CANCELED")
    ]


# optional: refunds
def refund(world: World) -> None:
    """A part of order a."""
    consumer = refund_charge.app.Application(world.environment("refund_charge")).consumer
    requested = RefundRequested(
        order_id=placed("a").order_id,
        refund_id="rfd_" + "1" * 32,
        attempt=1,
        amount_minor=100,
        currency="EUR",
        requested_at=placed("a").placed_at,
    )
    world.consume(consumer, RefundRequestedEvent.of(requested, correlation_id="c"))
    assert len(world.stripe.ledger().refunds) == 1


# end optional
# optional: cancel | authentication
def answer_questions(world: World) -> None:
    """The client secret of order c; the cancellation of an order that has no PaymentIntent yet."""
    application = payment_questions.app.Application(world.environment("payment_questions"))
    # optional: authentication
    secret = {"question": "client_secret", "order_id": placed("c").order_id, "attempt": 1, "correlation_id": "c"}
    assert application.answer(secret)["client_secret"]
    # end optional
    # optional: cancel
    cancel = {"question": "cancel", "order": placed("e").model_dump(mode="json"), "correlation_id": "c"}
    assert application.answer(cancel) == {"cancellation": "CANCELED"}
    # end optional


# end optional
def is_charged_though_canceled(world: World, name: str) -> None:
    """The protocol excludes it; whoever notices refunds it, if there is a refunds part."""
    world.change_row(placed(name).order_id, state="CANCELED")


class InFourMinutes(LambdaContext):
    """The timeout of the scheduled run."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 240_000


def run_reconcile(world: World) -> None:
    """Order a was refunded, b is charged though it is canceled, and nobody authenticates c."""
    is_charged_though_canceled(world, "b")
    world.change_row(placed("c").order_id, unfinished_claimed_at=int(time.time()) - DAY)
    reconcile.app.Application(world.environment("reconcile")).reconcile(InFourMinutes())
    assert world.state(placed("c").order_id) == "DECLINED"


# optional: webhook
def receive_webhooks(world: World) -> None:
    """The same of orders of its own."""
    orders = [placed("8"), placed("9", card="pm_card_threeDSecure2Required")]
    world.consume(world.charging, *(OrderPlacedEvent.of(each, correlation_id="c") for each in orders))
    is_charged_though_canceled(world, "8")
    resolver = stripe_webhook.app.Application(world.environment("stripe_webhook")).route.resolver
    types = ("payment_intent.succeeded", "payment_intent.requires_action", "charge.refunded")
    for event in world.events(*types):
        body = json.dumps(event)
        http = world.sample("stripe_webhook/unsigned") | {"body": body, "isBase64Encoded": False}
        http["headers"] |= {"stripe-signature": signature(body, STRIPE_WEBHOOK_SECRET, int(time.time()))}
        assert resolver.resolve(http, LambdaContext())["statusCode"] == 200
    assert world.state(placed("9").order_id) == "DECLINED"


# end optional
RUNS: Mapping[str, Callable[[World], None]] = {
    "charge_order": charge,
    "refund_charge": refund,  # optional: refunds
    "payment_questions": answer_questions,  # optional: cancel | authentication
    "reconcile": run_reconcile,
    "stripe_webhook": receive_webhooks,  # optional: webhook
}


@pytest.fixture
def world(aws: None, sample: Sample) -> Iterator[World]:
    with running_standin() as standin:
        yield World(standin.base_url, sample)


@pytest.mark.parametrize("function", RUNS)
def test_a_function_needs_the_permissions_that_are_listed_and_no_other(world: World, function: str) -> None:
    """With a key that has these alone, all of its kinds of work succeed; and each permission is used."""
    if function != "charge_order":
        charge(world)
    RUNS[function](world)
    assert world.stripe.permissions_used()[f"rk_test_{function}"] == without_included(PERMISSIONS[function])
    assert world.stripe.ledger().counts.get("status_403", 0) == 0


def test_every_function_with_a_stripe_key_is_listed() -> None:
    """And no other."""
    templates = load_template()["Resources"].items()
    with_key = {
        name for name, each in templates if "STRIPE_SECRET_ARN" in str(each.get("Properties", {}).get("Environment"))
    }
    listed = {"".join(word.title() for word in function.split("_")) + "Function" for function in PERMISSIONS}
    assert with_key == listed
    assert RUNS.keys() == PERMISSIONS.keys()


def test_the_guide_has_the_same_permissions() -> None:
    """docs/guides/stripe-keys.md, in the Dashboard's words."""
    rows = re.findall(r"(?m)^\| `(\w+)` \|([^|]*)\|", (PROJECT / "docs/guides/stripe-keys.md").read_text())
    words = {"PaymentIntents": "payment_intent", "Charges and Refunds": "charge", "Events": "event"}
    documented: dict[str, set[str]] = {}
    for function, permission in rows:
        resource, access = permission.split(":")
        documented.setdefault(function, set()).add(f"{words[resource.strip()]}_{access.strip().lower()}")
    assert documented == {function: set(each) for function, each in PERMISSIONS.items()}


def test_a_write_includes_the_read_of_its_resource() -> None:
    """And of no other."""
    given = [Permission.CHARGES_READ, Permission.CHARGES_WRITE, Permission.EVENTS_READ]
    assert without_included(given) == ["charge_write", "event_read"]
