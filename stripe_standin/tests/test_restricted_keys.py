"""Restricted keys: an endpoint answers a key that has its permission, and no other."""

import pytest
import stripe

from stripe_standin.tests.standin_account import Account

KEY = "rk_test_narrow"


def client(account: Account, *permissions: str) -> stripe.StripeClient:
    account.admin.restrict_api_key(KEY, permissions)
    return account.client_with(KEY)


def test_a_missing_permission_is_a_403_that_names_it(account: Account) -> None:
    """As Stripe's, without the key in full; nothing is created."""
    narrow = client(account, "payment_intent_read", "charge_write")
    with pytest.raises(stripe.PermissionError) as refused:
        narrow.v1.payment_intents.create({"amount": 1099, "currency": "eur"})
    assert refused.value.error is not None
    assert (refused.value.http_status, refused.value.error.code) == (403, "more_permissions_required")
    assert "'rak_payment_intent_write'" in str(refused.value)
    assert KEY not in str(refused.value)
    assert account.admin.ledger().payment_intents == ()


def test_what_each_key_has_needed_is_recorded(account: Account) -> None:
    """Refused requests too; a read that a write includes is not listed beside it."""
    paid = account.pay()
    narrow = client(account, "payment_intent_read")
    narrow.v1.payment_intents.retrieve(paid.id)
    assert account.admin.permissions_used()[KEY] == ["payment_intent_read"]
    with pytest.raises(stripe.PermissionError):
        narrow.v1.payment_intents.cancel(paid.id)
    with pytest.raises(stripe.PermissionError):
        narrow.v1.events.list()
    assert account.admin.permissions_used()[KEY] == ["event_read", "payment_intent_write"]
