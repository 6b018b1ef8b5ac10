"""Restricted Stripe keys: each function, with a key of its own, needs exactly the permissions that are documented.

The deployed applications run over moto's AWS and the stand-in, which enforces the permissions. A missing one fails,
since a request is refused; and one that is listed without need fails, since nothing uses it.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

import payment_questions.app
import reconcile.app
import refund_charge.app
import stripe_eventbridge.app
import stripe_webhook.app
from local.given_stripe import STRIPE_WEBHOOK_SECRET
from local.partner_events import envelope_of
from local.stripe_standin.server import running_standin
from local.stripe_standin.webhooks import signature
from onecharge.contract.cancellations import CancelRequestedEvent
from onecharge.contract.refunds import RefundRequested, RefundRequestedEvent
from onecharge.payments.stripe_permissions import PERMISSIONS, Permission, without_included
from testing.harness import PROJECT, LambdaContext, Sample, load_template
from testing.payment_functions import DAY, PaymentFunctions, placed


def charge(world: PaymentFunctions) -> None:
    """Fresh orders, one that is a day old, one that waits for 3-D Secure, one that is canceled."""
    orders = [placed("a"), placed("b", age_seconds=DAY), placed("c", card="pm_card_threeDSecure2Required")]
    world.charge(*orders)
    world.consume(world.charging, CancelRequestedEvent.of(placed("d"), correlation_id="c"))
    assert [world.state(placed(name).order_id) for name in "abcd"] == [
        *("SUCCEEDED", "SUCCEEDED", "REQUIRES_ACTION", "CANCELED")
    ]


def refund(world: PaymentFunctions) -> None:
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


def answer_questions(world: PaymentFunctions) -> None:
    """The client secret of order c; the cancellation of an order that has no PaymentIntent yet."""
    application = payment_questions.app.Application(world.environment("payment_questions"))
    secret = {"question": "client_secret", "order_id": placed("c").order_id, "attempt": 1, "correlation_id": "c"}
    assert application.answer(secret)["client_secret"]
    cancel = {"question": "cancel", "order": placed("e").model_dump(mode="json"), "correlation_id": "c"}
    assert application.answer(cancel) == {"cancellation": "CANCELED"}


def is_charged_though_canceled(world: PaymentFunctions, name: str) -> None:
    """The protocol excludes it; whoever notices refunds it, if there is a refunds part."""
    world.change_row(placed(name).order_id, state="CANCELED")


class InFourMinutes(LambdaContext):
    """The timeout of the scheduled run."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 240_000


def run_reconcile(world: PaymentFunctions) -> None:
    """Order a was refunded, b is charged though it is canceled, and nobody authenticates c."""
    is_charged_though_canceled(world, "b")
    world.refund_by_hand(placed("a").order_id)
    world.change_row(placed("c").order_id, unfinished_claimed_at=int(time.time()) - DAY)
    reconcile.app.Application(world.environment("reconcile")).reconcile(InFourMinutes())
    assert world.state(placed("c").order_id) == "DECLINED"


def receive_webhooks(world: PaymentFunctions) -> None:
    """The same of orders of its own."""
    orders = [placed("8"), placed("9", card="pm_card_threeDSecure2Required")]
    world.charge(*orders)
    is_charged_though_canceled(world, "8")
    world.refund_by_hand(placed("a").order_id)
    resolver = stripe_webhook.app.Application(world.environment("stripe_webhook")).route.resolver
    types = ("payment_intent.succeeded", "payment_intent.requires_action", "charge.refunded")
    for event in world.events(*types):
        body = json.dumps(event)
        http = world.sample("stripe_webhook/unsigned") | {"body": body, "isBase64Encoded": False}
        http["headers"] |= {"stripe-signature": signature(body, STRIPE_WEBHOOK_SECRET, int(time.time()))}
        assert resolver.resolve(http, LambdaContext())["statusCode"] == 200
    assert world.state(placed("9").order_id) == "DECLINED"


def receive_partner_events(world: PaymentFunctions) -> None:
    """The same through EventBridge."""
    orders = [placed("8"), placed("9", card="pm_card_threeDSecure2Required")]
    world.charge(*orders)
    is_charged_though_canceled(world, "8")
    world.refund_by_hand(placed("a").order_id)
    environment = world.environment("stripe_eventbridge")
    consumer = stripe_eventbridge.app.Application(environment).consumer
    types = ("payment_intent.succeeded", "payment_intent.requires_action", "charge.refunded")
    source = environment["STRIPE_EVENT_SOURCE_NAME"]
    events = [envelope_of(event, account="123456789012", source=source) for event in world.events(*types)]
    assert world.deliver(consumer, *(json.dumps(each) for each in events)) == []
    assert world.state(placed("9").order_id) == "DECLINED"


RUNS: Mapping[str, Callable[[PaymentFunctions], None]] = {
    "charge_order": charge,
    "refund_charge": refund,
    "payment_questions": answer_questions,
    "reconcile": run_reconcile,
    "stripe_webhook": receive_webhooks,
    "stripe_eventbridge": receive_partner_events,
}


@pytest.fixture
def world(aws: None, sample: Sample) -> Iterator[PaymentFunctions]:
    with running_standin() as standin:
        functions = PaymentFunctions(standin.base_url, sample)
        functions.requires_action_seconds = "0"
        yield functions


@pytest.mark.parametrize("function", RUNS)
def test_a_function_needs_the_permissions_that_are_listed_and_no_other(world: PaymentFunctions, function: str) -> None:
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
    rows = re.findall(
        r"(?m)^\| `(\w+)` \| ([\w ]+): (Read|Write) \|", (PROJECT / "docs/guides/stripe-keys.md").read_text()
    )
    words = {"PaymentIntents": "payment_intent", "Charges and Refunds": "charge", "Events": "event"}
    documented: dict[str, set[str]] = {}
    for function, resource, access in rows:
        documented.setdefault(function, set()).add(f"{words[resource]}_{access.lower()}")
    assert documented == {function: set(each) for function, each in PERMISSIONS.items()}


def test_a_write_includes_the_read_of_its_resource() -> None:
    """And of no other."""
    given = [Permission.CHARGES_READ, Permission.CHARGES_WRITE, Permission.EVENTS_READ]
    assert without_included(given) == ["charge_write", "event_read"]
