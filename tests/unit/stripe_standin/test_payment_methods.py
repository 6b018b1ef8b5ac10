"""PaymentMethods: which customer they belong to, and how often they can pay."""

from typing import Any

import pytest
import stripe

from local.stripe_standin.payment_methods import USED_UP
from testing.standin_account import Account


def test_each_use_of_a_test_card_creates_a_payment_method(account: Account) -> None:
    """So its name pays any number of times; the PaymentIntent has the new PaymentMethod's id."""
    paid = [account.confirm(account.create().id, "pm_card_visa") for _ in range(2)]
    methods = {intent.payment_method for intent in paid}
    assert len(methods) == 2
    assert "pm_card_visa" not in methods


def test_a_payment_method_without_a_customer_pays_once(account: Account) -> None:
    """The second payment gets 400 with Stripe's message; no money moves."""
    method = account.payment_method()
    first, second = account.create(), account.create()
    assert account.confirm(first.id, method).payment_method == method
    error = account.confirm_fails(second.id, method)
    assert isinstance(error, stripe.InvalidRequestError)
    assert (error.http_status, error.user_message, error.code) == (400, USED_UP, None)
    assert account.charges == 1
    assert account.retrieve(second.id).status == "requires_payment_method"


def test_a_payment_method_with_a_customer_is_reusable(account: Account) -> None:
    """For its own customer only: a PaymentIntent of another customer, or without one, is refused."""
    method = account.payment_method()
    account.client.v1.payment_methods.attach(method, {"customer": "cus_1"})
    for _ in range(2):
        assert account.confirm(account.create(customer="cus_1").id, method).status == "succeeded"
    other = account.confirm_fails(account.create(customer="cus_2").id, method)
    assert (other.http_status, other.code, getattr(other, "param", None)) == (400, None, "payment_method")
    without = account.confirm_fails(account.create().id, method)
    assert (without.http_status, without.code) == (400, "parameter_missing")
    with pytest.raises(stripe.InvalidRequestError):
        account.create(customer="cus_2", payment_method=method)
    assert account.charges == 2


def test_a_payment_method_is_created_attached_and_detached(account: Account) -> None:
    """From a test token; a detached PaymentMethod cannot pay."""
    methods, method = account.client.v1.payment_methods, account.payment_method()
    assert methods.attach(method, {"customer": "cus_1"}).customer == "cus_1"
    assert methods.retrieve(method).customer == "cus_1"
    assert methods.detach(method).customer is None
    assert account.confirm_fails(account.create(customer="cus_1").id, method).http_status == 400


def test_a_used_payment_method_cannot_be_attached(account: Account) -> None:
    """Nor can a test card that declines, except pm_card_chargeCustomerFail."""
    method = account.payment_method()
    account.confirm(account.create().id, method)
    attach: Any = account.client.v1.payment_methods.attach
    with pytest.raises(stripe.InvalidRequestError):
        attach(method, {"customer": "cus_1"})
    with pytest.raises(stripe.CardError):
        attach("pm_card_chargeDeclined", {"customer": "cus_1"})
    assert attach("pm_card_chargeCustomerFail", {"customer": "cus_1"}).customer == "cus_1"
