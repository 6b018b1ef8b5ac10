"""The restricted Stripe key: the functions need exactly the permissions that docs/guides/deploy.md lists."""

import json
import re
import time
from collections.abc import Iterator

import pytest

from get_payment.app import GetPaymentParts
from local.given_stripe import STRIPE_WEBHOOK_SECRET
from onecharge.contract.events import CancelRequestedEvent
from onecharge.contract.refunds import RefundRequested, RefundRequestedEvent
from onecharge.payments.stripe_events import ReconcileCheckpoint
from reconcile.app import ReconcileParts
from refund_charge.app import RefundChargeParts
from stripe_standin.server import running_standin
from stripe_standin.webhook_endpoints import signature
from stripe_webhook.app import StripeWebhookParts
from tests.support.functions import handle
from tests.support.harness import PROJECT, LambdaContext, Sample
from tests.support.payment_functions import DAY, PaymentFunctions, placed


def charge(world: PaymentFunctions) -> None:
    """Charges fresh orders, one that waits for 3-D Secure; one is canceled, one paid again."""
    orders = [placed("a"), placed("b"), placed("c", card="pm_card_threeDSecure2Required")]
    world.charge(*orders)
    lost_card = placed("e", card="pm_card_visa_chargeDeclinedLostCard")
    for changes in ({}, {"attempt": 2, "payment_method": "pm_card_visa"}):
        world.charge(lost_card.model_copy(update=changes))
    world.consume(world.charge_order.consumer, CancelRequestedEvent.of(placed("d"), correlation_id="c"))
    assert [world.state(placed(name).order_id) for name in "abcd"] == [
        *("SUCCEEDED", "SUCCEEDED", "REQUIRES_ACTION", "CANCELED")
    ]


def refund(world: PaymentFunctions) -> None:
    """Refunds a part of order a."""
    consumer = RefundChargeParts(world.environment("refund_charge")).consumer
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


def show_the_client_secret(world: PaymentFunctions) -> None:
    """Order c waits for 3-D Secure."""
    resolver = GetPaymentParts(world.environment("get_payment")).resolver
    event = world.sample("get_payment/get_payment")
    event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = placed("c").customer_id
    event["rawPath"] = event["requestContext"]["http"]["path"] = f"/orders/{placed('c').order_id}/payment"
    assert json.loads(resolver.resolve(event, LambdaContext())["body"])["client_secret"]


class InFourMinutes(LambdaContext):
    """The timeout of the scheduled run."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 240_000


def run_reconcile(world: PaymentFunctions) -> None:
    """Order a was refunded, and nobody authenticates c."""
    world.refund_by_hand(placed("a").order_id)
    world.change_row(placed("c").order_id, unfinished_claimed_at=int(time.time()) - DAY)
    parts = ReconcileParts(world.environment("reconcile"))
    parts.checkpoints(ReconcileCheckpoint).write(ReconcileCheckpoint(since=int(time.time()) - DAY))
    handle(parts, {}, InFourMinutes())
    assert world.state(placed("c").order_id) == "CANCELED"


def receive_webhooks(world: PaymentFunctions) -> None:
    """Another order is disputed."""
    world.charge(placed("7", card="pm_card_createDispute"))
    world.refund_by_hand(placed("a").order_id)
    resolver = StripeWebhookParts(world.environment("stripe_webhook")).route.resolver
    types = ("payment_intent.succeeded", "payment_intent.requires_action", "charge.refunded", "charge.dispute.created")
    for event in world.events(*types):
        body = json.dumps(event)
        http = world.sample("stripe_webhook/payment_intent_succeeded") | {"body": body, "isBase64Encoded": False}
        http["headers"] |= {"stripe-signature": signature(body, STRIPE_WEBHOOK_SECRET, int(time.time()))}
        assert resolver.resolve(http, LambdaContext())["statusCode"] == 200


@pytest.fixture
def world(aws: None, sample: Sample) -> Iterator[PaymentFunctions]:
    with running_standin() as standin:
        yield PaymentFunctions(standin.base_url, sample)


def test_one_key_needs_the_permissions_that_the_guide_lists_and_no_other(world: PaymentFunctions) -> None:
    """By the requests that all functions send; a write includes the read."""
    words = {
        "payment_intents": "PaymentIntents",
        "charges": "Charges and Refunds",
        "refunds": "Charges and Refunds",
        "disputes": "Disputes",
        "events": "Events",
    }
    for work in (charge, refund, show_the_client_secret, run_reconcile, receive_webhooks):
        work(world)
    sent = re.findall(r"(?m)^(GET|POST) /v1/(\w+)", "\n".join(world.stripe.ledger().counts))
    used = {(words[path], "Write" if method == "POST" else "Read") for method, path in sent}
    rows = re.findall(r"(?m)^\| ([\w ]+): (Read|Write) \|", (PROJECT / "docs/guides/deploy.md").read_text())
    assert set(rows) == used - {(resource, "Read") for resource, access in used if access == "Write"}
