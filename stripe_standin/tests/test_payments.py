"""PaymentIntents and PaymentMethods: the statuses that each request leads to, and whether money moves."""

from typing import Any

import pytest

from stripe_standin import attempts
from stripe_standin.amounts import MINIMUM_AMOUNTS
from stripe_standin.charges import Charge
from stripe_standin.errors import ApiError
from stripe_standin.payment_methods import USED_UP
from stripe_standin.tests.support import ASKS, CREATE, VISA, Stripe, short

UNEXPECTED = "payment_intent_unexpected_state"
NEEDS_METHOD, SUCCEEDED, CANCELED = "requires_payment_method", "succeeded", "canceled"
MAKE: dict[str, Any] = {
    NEEDS_METHOD: Stripe.created,
    "requires_confirmation": lambda stripe: stripe.created(payment_method=VISA),
    "requires_action": lambda stripe: stripe.paid(ASKS),
    "processing": Stripe.processing,
    SUCCEEDED: Stripe.paid,
    CANCELED: lambda stripe: stripe.post(f"payment_intents/{stripe.created()}/cancel").body["id"],
}
ACTS: dict[str, Any] = {
    "confirm": lambda stripe, intent: stripe.confirm(intent).status,
    "cancel": lambda stripe, intent: stripe.post(f"payment_intents/{intent}/cancel").status,
    "succeed": lambda stripe, intent: attempts.decide(stripe.account, stripe.intent(intent), succeed=True),
    "fail": lambda stripe, intent: attempts.decide(stripe.account, stripe.intent(intent), succeed=False),
}
MOVES = {
    NEEDS_METHOD: {"confirm": SUCCEEDED, "cancel": CANCELED},
    "requires_confirmation": {"confirm": SUCCEEDED, "cancel": CANCELED},
    "requires_action": {"confirm": SUCCEEDED, "cancel": CANCELED, "succeed": SUCCEEDED, "fail": NEEDS_METHOD},
    "processing": {"succeed": SUCCEEDED, "fail": NEEDS_METHOD},
}
"""All other moves are refused, and change nothing."""


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("status", MAKE)
def test_each_status_has_its_moves(stripe: Stripe, status: str, act: str) -> None:
    """Money is taken once if it ends as succeeded, and never otherwise; an event tells of each change."""
    intent = MAKE[status](stripe)
    assert stripe.intent(intent).status == status
    events, expected = len(stripe.account.events), MOVES.get(status, {}).get(act, status)
    try:
        is_refused = ACTS[act](stripe, intent) == 400
    except ApiError:
        is_refused = True
    assert (stripe.intent(intent).status, is_refused) == (expected, act not in MOVES.get(status, {}))
    assert len(stripe.account.ledger) == (expected == SUCCEEDED)
    assert (len(stripe.account.events) == events) is is_refused


def test_a_decline_makes_a_charge_and_names_it(stripe: Stripe) -> None:
    """In the error and in the PaymentIntent, with payment method and reason. Another card pays after it."""
    intent = stripe.created(payment_method="pm_card_visa_chargeDeclinedInsufficientFunds")
    error = stripe.post(f"payment_intents/{intent}/confirm").body["error"]
    after = stripe.get(f"payment_intents/{intent}").body
    failure = after["last_payment_error"]
    assert error["payment_intent"] == after
    assert (error["charge"], after["payment_method"]) == (after["latest_charge"], None)
    assert (failure["code"], failure["decline_code"]) == ("card_declined", "insufficient_funds")
    assert failure["payment_method"]["object"] == "payment_method"
    assert stripe.last_events(2) == ["charge.failed", "payment_intent.payment_failed"]
    assert short(stripe.post(f"payment_intents/{intent}/confirm")) == (400, UNEXPECTED)
    assert stripe.confirm(intent).body["last_payment_error"] is None
    assert [each.succeeded for each in stripe.account.all(Charge).values()] == [False, True]


def test_events_hold_objects_and_name_their_request(stripe: Stripe) -> None:
    """The Charge's before the PaymentIntent's, with the idempotency key and the metadata of the create."""
    stripe.confirm(stripe.created(), key="confirm-1")
    [created, charged, paid] = stripe.account.events
    assert [each["type"] for each in (created, charged)] == ["payment_intent.created", "charge.succeeded"]
    assert (paid["type"], paid["data"]["object"]["status"]) == ("payment_intent.succeeded", SUCCEEDED)
    assert charged["data"]["object"]["metadata"] == {"order_id": "ord_1"}
    assert paid["request"]["idempotency_key"] == "confirm-1"


@pytest.mark.parametrize(
    ("status", "code", "charges"),
    [("requires_action", "payment_intent_authentication_failure", 0), ("processing", "card_declined", 1)],
)
def test_a_payment_that_fails_later_says_why(stripe: Stripe, status: str, code: str, charges: int) -> None:
    """A failed authentication makes no charge; what was processing is declined, and its charge is a failed one."""
    attempts.decide(stripe.account, stripe.intent(intent := MAKE[status](stripe)), succeed=False)
    failed = [each.as_json()["status"] for each in stripe.account.all(Charge).values()]
    assert ((stripe.intent(intent).last_payment_error or {})["code"], failed) == (code, ["failed"] * charges)


@pytest.mark.parametrize(("text", "is_true"), [("true", True), ("True", True), ("false", False), ("False", False)])
def test_booleans_are_also_taken_as_older_sdks_spell_them(stripe: Stripe, text: str, is_true: bool) -> None:
    """stripe-python before version 12 sends `True`."""
    confirmed = stripe.post("payment_intents", {**CREATE, "payment_method": VISA, "confirm": text})
    assert short(confirmed) == (200, SUCCEEDED if is_true else "requires_confirmation")


def test_a_payment_method_pays_once(stripe: Stripe) -> None:
    """The name of a test card makes a new one with each use."""
    method = stripe.post("payment_methods", {"type": "card", "card[token]": "tok_visa"}).body["id"]
    assert stripe.confirm(stripe.created(), method).body["payment_method"] == method
    error = stripe.confirm(stripe.created(), method).body["error"]
    assert (error["message"], error.get("code")) == (USED_UP, None)
    names = {stripe.confirm(stripe.created()).body["payment_method"] for _ in range(2)}
    assert (len(names), len(stripe.account.ledger)) == (2, 3)


def test_an_account_takes_only_its_own_payment_methods(stripe: Stripe) -> None:
    """Or those of the account that `cards_of` names, each as a card of its own, as if it had been cloned."""
    method = stripe.post("payment_methods", {"type": "card", "card[token]": "tok_visa"}).body["id"]
    stripe.engine.assign_key("sk_test_stranger", "acct_stranger")
    stripe.engine.assign_key("sk_test_clone", "acct_clone", "acct_standin")
    wanted = {**CREATE, "payment_method": method, "confirm": "true"}
    answers = [
        short(stripe.post("payment_intents", wanted, api_key=f"sk_test_{each}")) for each in ("stranger", "clone", "x")
    ]
    assert answers == [(400, "resource_missing"), (200, SUCCEEDED), (200, SUCCEEDED)]


@pytest.mark.parametrize("currency", MINIMUM_AMOUNTS)
def test_an_amount_below_the_minimum_is_refused(stripe: Stripe, currency: str) -> None:
    """The minimum itself is taken."""
    least = MINIMUM_AMOUNTS[currency]
    answers = [
        short(stripe.post("payment_intents", {**CREATE, "amount": str(each), "currency": currency}))
        for each in (least, least - 1)
    ]
    assert answers == [(200, NEEDS_METHOD), (400, "amount_too_small")]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"capture_method": "manual"}, "parameter_unknown"),
        ({"allowed_payment_method_types[0]": "sepa_debit"}, None),
        ({"allowed_payment_method_types[1]": "link"}, None),
        ({"payment_method_types[0]": "card"}, "payment_method_types_no_longer_supported"),
        ({"currency": "euro"}, None),
        ({"confirm": "yes"}, None),
        ({"confirm": "true"}, UNEXPECTED),
        ({"confirm": "true", "payment_method": VISA, "use_stripe_sdk": "1"}, None),
    ],
)
def test_a_create_that_cannot_be_meant_is_refused(stripe: Stripe, given: dict[str, str], code: str | None) -> None:
    """400, and no PaymentIntent is made."""
    assert short(stripe.post("payment_intents", {**CREATE, **given})) == (400, code)
    assert stripe.account.events == []


def test_no_card_pays_at_an_account_that_takes_none() -> None:
    """Cards are filtered out of the types that it allows."""
    stripe = Stripe(takes_cards=False)
    assert short(stripe.confirm(stripe.created())) == (400, "payment_intent_incompatible_payment_method")
