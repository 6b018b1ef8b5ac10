"""PaymentIntents that are created first and confirmed later behave as Stripe documents."""

from typing import Any

import pytest
import stripe

from stripe_standin.account import API_VERSION
from stripe_standin.amounts import CURRENCIES, MINIMUM_AMOUNTS
from stripe_standin.cards import TEST_CARDS
from stripe_standin.faults import Fault
from stripe_standin.tests.standin_account import Account

CONFIRM = "/v1/payment_intents/*/confirm"


def details(error: stripe.StripeError) -> Any:
    assert error.error is not None
    return error.error


def test_confirm_charges_once(account: Account) -> None:
    """With the request's payment method, or the PaymentIntent's own; the ledger has the idempotency key."""
    first, second = account.create(), account.create(payment_method="pm_card_mastercard")
    assert account.confirm(first.id, "pm_card_visa", "confirm-1").status == "succeeded"
    assert account.confirm(second.id, None).status == "succeeded"
    charges = account.admin.ledger().charges
    confirmed = [(charge.payment_intent_id, charge.idempotency_key is not None) for charge in charges]
    assert confirmed == [(first.id, True), (second.id, True)]
    assert charges[0].idempotency_key == "confirm-1"
    assert [charge.order_id for charge in charges] == ["ord_1", "ord_1"]


def test_a_confirm_emits_an_event_of_the_charge_and_one_of_the_payment_intent(account: Account) -> None:
    """The Charge's event is first and has the PaymentIntent's metadata; each event names its request."""
    intent = account.confirm(account.create().id, "pm_card_visa", "confirm-1")
    created, charged, paid = account.admin.events()
    assert [event["type"] for event in (created, charged, paid)] == [
        "payment_intent.created",
        "charge.succeeded",
        "payment_intent.succeeded",
    ]
    charge = charged["data"]["object"]
    assert (charge["object"], charge["id"], charge["payment_intent"]) == ("charge", intent.latest_charge, intent.id)
    assert charge["metadata"] == {"shop": "shop_1", "order_id": "ord_1"}
    assert charged["request"]["idempotency_key"] == paid["request"]["idempotency_key"] == "confirm-1"
    assert created["request"]["id"] != paid["request"]["id"]
    assert paid["api_version"] == API_VERSION


def test_a_decline_creates_a_failed_charge(account: Account) -> None:
    """The error and the PaymentIntent name the charge, the payment method and the reason; no money moves."""
    intent = account.create()
    error = details(account.confirm_fails(intent.id, "pm_card_visa_chargeDeclinedInsufficientFunds"))
    after = account.retrieve(intent.id)
    failure: Any = after.last_payment_error
    assert (after.status, after.payment_method) == ("requires_payment_method", None)
    assert after.latest_charge == failure.charge == error.charge
    assert error.payment_intent.to_dict() == after.to_dict()
    assert (failure.type, failure.code, failure.decline_code) == ("card_error", "card_declined", "insufficient_funds")
    assert (failure.advice_code, failure.message) == ("try_again_later", "Your card has insufficient funds.")
    assert failure.doc_url == "https://stripe.com/docs/error-codes/card-declined"
    assert failure.payment_method.object == "payment_method"
    assert account.event_types()[-2:] == ["charge.failed", "payment_intent.payment_failed"]
    [failed] = account.admin.ledger().unpaid_charges
    assert (failed["id"], failed["status"], account.charges) == (after.latest_charge, "failed", 0)


def test_a_decline_clears_the_payment_method(account: Account) -> None:
    """A confirm without a payment method is refused, with the PaymentIntent in the error."""
    intent = account.create(payment_method="pm_card_chargeDeclined")
    account.confirm_fails(intent.id, None)
    error = account.confirm_fails(intent.id, None)
    assert (error.http_status, error.code) == (400, "payment_intent_unexpected_state")
    assert details(error).payment_intent.id == intent.id


@pytest.mark.parametrize("succeed", [True, False])
def test_a_processing_payment_intent_succeeds_or_is_declined_later(account: Account, succeed: bool) -> None:
    """Until then it can be neither confirmed nor canceled, and no money moves."""
    intent = account.create()
    account.admin.add_fault(Fault.STAYS_PROCESSING, path=CONFIRM)
    assert account.confirm(intent.id, "pm_card_visa", "confirm-1").status == "processing"
    assert account.charges == 0
    assert account.confirm_fails(intent.id).code == "payment_intent_unexpected_state"
    with pytest.raises(stripe.InvalidRequestError):
        account.client.v1.payment_intents.cancel(intent.id)
    account.admin.finish_processing(intent.id, succeed=succeed)
    after = account.retrieve(intent.id)
    assert after.status == ("succeeded" if succeed else "requires_payment_method")
    assert [charge.idempotency_key for charge in account.admin.ledger().charges] == ["confirm-1"] * succeed
    assert "payment_intent.processing" in account.event_types()
    assert account.confirm(intent.id, "pm_card_visa", "confirm-1").status == "processing"


def test_a_failed_authentication_makes_no_charge(account: Account) -> None:
    """The PaymentIntent goes back to requires_payment_method, with the reason in last_payment_error."""
    intent = account.create()
    assert account.confirm(intent.id, "pm_card_threeDSecure2Required").status == "requires_action"
    account.admin.authenticate(intent.id, succeed=False)
    after = account.retrieve(intent.id)
    failure: Any = after.last_payment_error
    assert (after.status, after.latest_charge) == ("requires_payment_method", None)
    assert failure.code == "payment_intent_authentication_failure"
    assert account.admin.ledger().unpaid_charges == ()


def test_3d_secure_is_a_redirect_only_without_stripes_sdk(account: Account) -> None:
    """With a `return_url` and without `use_stripe_sdk`, the customer would have to leave the page."""
    kinds = []
    for sdk in ({}, {"use_stripe_sdk": True}):
        given: dict[str, Any] = {"return_url": "https://shop.example/back", **sdk}
        waiting = account.confirm(account.create().id, "pm_card_threeDSecure2Required", **given)
        assert waiting.next_action is not None
        kinds.append(waiting.next_action.type)
    assert kinds == ["redirect_to_url", "use_stripe_sdk"]


def test_a_decline_with_authentication_required_makes_no_charge(account: Account) -> None:
    """Off session, or with error_on_requires_action."""
    for parameter in ("off_session", "error_on_requires_action"):
        intent = account.create()
        error = account.confirm_fails(intent.id, "pm_card_authenticationRequired", **{parameter: True})
        assert (error.http_status, error.code) == (402, "authentication_required")
        assert account.retrieve(intent.id).latest_charge is None


def test_authentication_may_end_in_a_decline(account: Account) -> None:
    """The customer authenticates, and the bank declines with insufficient_funds."""
    intent = account.create()
    account.confirm(intent.id, "pm_card_authenticationRequiredChargeDeclinedInsufficientFunds")
    account.admin.authenticate(intent.id)
    failure: Any = account.retrieve(intent.id).last_payment_error
    assert failure.decline_code == "insufficient_funds"
    assert account.charges == 0


@pytest.mark.parametrize(
    "refused",
    [
        {"capture_method": "manual"},
        {"confirmation_method": "manual"},
        {"allowed_payment_method_types": ["sepa_debit"]},
        {"payment_method_types": ["card"]},
    ],
)
def test_unsupported_ways_to_charge_are_refused(account: Account, refused: dict[str, Any]) -> None:
    """400 for manual capture, manual confirmation and other payment method types; never charged anyway."""
    with pytest.raises(stripe.InvalidRequestError) as failed:
        account.create(**refused)
    assert failed.value.http_status == 400


def test_redirects_need_a_return_url(account: Account) -> None:
    """By default a PaymentIntent accepts payment methods that redirect: a confirm without return_url is refused."""
    parameters: Any = {"amount": 1099, "currency": "eur"}
    intent = account.client.v1.payment_intents.create(parameters)
    assert account.confirm_fails(intent.id).http_status == 400
    assert account.confirm(intent.id, return_url="https://shop.example/").status == "succeeded"


@pytest.mark.parametrize(("currency", "minimum"), MINIMUM_AMOUNTS.items())
def test_an_amount_below_the_minimum_is_refused(account: Account, currency: str, minimum: int) -> None:
    """The minimum itself is accepted; one minor unit less is amount_too_small."""
    assert account.create(amount=minimum, currency=currency).amount == minimum
    with pytest.raises(stripe.InvalidRequestError) as refused:
        account.create(amount=minimum - 1, currency=currency)
    assert (refused.value.code, refused.value.param) == ("amount_too_small", "amount")
    assert currency in CURRENCIES


def test_every_test_card_behaves_as_stripe_documents(account: Account) -> None:
    """More than thirty test cards; each decline has its documented code and decline code."""
    outcomes = {}
    for name in TEST_CARDS:
        try:
            outcomes[name] = account.confirm(account.create().id, name).status
        except stripe.CardError as error:
            outcomes[name] = f"{error.code} {getattr(details(error), 'decline_code', None) or '-'}"
    assert len(outcomes) > 30
    assert outcomes["pm_card_visa_chargeDeclinedLostCard"] == "card_declined lost_card"
    assert outcomes["pm_card_visa_chargeDeclinedStolenCard"] == "card_declined stolen_card"
    assert outcomes["pm_card_visa_chargeDeclinedVelocityLimitExceeded"] == "card_declined card_velocity_exceeded"
    assert outcomes["pm_card_chargeDeclinedExpiredCard"] == "expired_card -"
    assert outcomes["pm_card_chargeDeclinedIncorrectCvc"] == "incorrect_cvc -"
    assert outcomes["pm_card_chargeDeclinedProcessingError"] == "processing_error -"
    assert outcomes["pm_card_radarBlock"] == "card_declined fraudulent"
    assert outcomes["pm_card_chargeCustomerFail"] == "card_declined generic_decline"
    assert outcomes["pm_card_threeDSecure2Required"] == "requires_action"
    assert outcomes["pm_card_threeDSecureOptional"] == "succeeded"
    assert outcomes["pm_card_createDispute"] == outcomes["pm_card_refundFail"] == "succeeded"


def test_a_charge_is_retrieved_listed_and_expanded(account: Account) -> None:
    """By its id, by its PaymentIntent, and instead of its id; other fields cannot be expanded."""
    intent = account.confirm(account.create().id)
    assert isinstance(intent.latest_charge, str)
    charge = account.client.v1.charges.retrieve(intent.latest_charge)
    assert (charge.status, charge.paid, charge.amount_captured) == ("succeeded", True, 1099)
    assert [each.id for each in account.client.v1.charges.list({"payment_intent": intent.id}).data] == [charge.id]
    expanded = account.client.v1.payment_intents.retrieve(intent.id, {"expand": ["latest_charge.payment_method"]})
    assert isinstance(expanded.latest_charge, stripe.Charge)
    with pytest.raises(stripe.InvalidRequestError):
        account.client.v1.payment_intents.retrieve(intent.id, {"expand": ["amount"]})
