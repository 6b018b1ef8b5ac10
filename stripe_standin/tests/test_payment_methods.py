"""PaymentMethods: how often they can pay."""

import stripe

from stripe_standin.payment_methods import USED_UP
from stripe_standin.tests.standin_account import Account


def test_each_use_of_a_test_card_creates_a_payment_method(account: Account) -> None:
    """So its name pays any number of times; the PaymentIntent has the new PaymentMethod's id."""
    paid = [account.confirm(account.create().id, "pm_card_visa") for _ in range(2)]
    methods = {intent.payment_method for intent in paid}
    assert len(methods) == 2
    assert "pm_card_visa" not in methods


def test_a_payment_method_pays_once(account: Account) -> None:
    """The second payment gets 400 with Stripe's message; no money moves."""
    method = account.payment_method()
    first, second = account.create(), account.create()
    assert account.confirm(first.id, method).payment_method == method
    error = account.confirm_fails(second.id, method)
    assert isinstance(error, stripe.InvalidRequestError)
    assert (error.http_status, error.user_message, error.code) == (400, USED_UP, None)
    assert account.charges == 1
    assert account.retrieve(second.id).status == "requires_payment_method"


def test_another_account_takes_a_payment_method_as_a_card_of_its_own(account: Account) -> None:
    """As if it had been cloned: paying with it there does not use it up here."""
    method, ours = account.payment_method(), account.client
    account.admin.assign_api_key("sk_test_other", "acct_other", cards_of="acct_standin")
    for client in account.client_with("sk_test_other"), ours:
        account.client = client
        account.confirm(account.create().id, method)
    assert {charge.account for charge in account.admin.ledger().charges} == {"acct_other", "acct_standin"}


def test_an_account_knows_no_payment_method_of_another(account: Account) -> None:
    """Unless it takes its cards."""
    method = account.payment_method()
    account.admin.assign_api_key("sk_test_other", "acct_other")
    account.client = account.client_with("sk_test_other")
    assert account.confirm_fails(account.create().id, method).code == "resource_missing"
