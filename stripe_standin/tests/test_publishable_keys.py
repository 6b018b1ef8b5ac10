"""Publishable keys: anyone can read one in a page, so it may request only what a page needs."""

from typing import Any

import pytest
import requests

from stripe_standin.tests.standin_account import Account

KEY = "pk_test_page"
CARD = {
    "type": "card",
    "card[number]": "4000000000003220",
    "card[exp_month]": "12",
    "card[exp_year]": "2034",
    "card[cvc]": "123",
}


def send(account: Account, method: str, path: str, *, key: str = KEY, **parameters: Any) -> requests.Response:
    """A request with this key, as Stripe.js sends it."""
    given: dict[str, Any] = {"params" if method == "GET" else "data": parameters}
    headers = {"Authorization": f"Bearer {key}"}
    return requests.request(method, f"{account.base_url}/v1/{path}", headers=headers, timeout=60, **given)


def test_a_page_makes_a_payment_method_of_a_typed_number(account: Account) -> None:
    """The number stays at Stripe: the PaymentMethod shows its last four digits."""
    made = send(account, "POST", "payment_methods", **CARD).json()
    assert (made["id"][:3], made["card"]["last4"]) == ("pm_", "3220")
    assert CARD["card[number]"] not in str(made)
    assert account.confirm(account.create().id, made["id"]).status == "requires_action"


def test_an_unknown_number_is_a_card_error(account: Account) -> None:
    error = send(account, "POST", "payment_methods", **{**CARD, "card[number]": "4000000000000000"})
    assert (error.status_code, error.json()["error"]["code"]) == (402, "incorrect_number")


def test_a_server_sends_no_card_numbers(account: Account) -> None:
    """With a secret key, Stripe refuses them."""
    assert send(account, "POST", "payment_methods", key="sk_test_x", **CARD).status_code == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "payment_intents"),
        ("POST", "payment_intents"),
        ("POST", "payment_intents/{id}"),
        ("POST", "payment_intents/{id}/confirm"),
        ("POST", "payment_intents/{id}/cancel"),
        ("POST", "refunds"),
        ("GET", "charges"),
        ("GET", "balance_transactions"),
    ],
)
def test_everything_else_needs_a_secret_key(account: Account, method: str, path: str) -> None:
    """Nothing changes."""
    intent = account.create()
    refused = send(account, method, path.format(id=intent.id), amount="1")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "secret_key_required")
    assert account.retrieve(intent.id).status == "requires_payment_method"


@pytest.mark.parametrize("path", ["", "/challenge"])
def test_a_payment_intent_is_seen_with_its_client_secret_alone(account: Account, path: str) -> None:
    """Without it, or with another's, it does not exist: the id alone is in too many places."""
    intent, other = account.create(), account.create()
    account.confirm(intent.id, "pm_card_threeDSecure2Required")
    for secret in ("", str(other.client_secret), intent.id):
        answer = send(account, "POST" if path else "GET", f"payment_intents/{intent.id}{path}", client_secret=secret)
        assert answer.status_code == 404
    assert account.retrieve(intent.id).status == "requires_action"
    given = {"client_secret": str(intent.client_secret), **({"succeed": "true"} if path else {})}
    answer = send(account, "POST" if path else "GET", f"payment_intents/{intent.id}{path}", **given)
    assert answer.json()["status"] == ("succeeded" if path else "requires_action")
