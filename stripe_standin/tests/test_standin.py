"""The stand-in behaves as Stripe documents, through Stripe's client over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import stripe

from stripe_standin.faults import Fault
from stripe_standin.tests.standin_account import PATIENCE_SECONDS, Account

DAY = 24 * 3600


@pytest.mark.parametrize("kind", [Fault.ERROR_500_BEFORE, Fault.ERROR_500_AFTER])
def test_a_500_is_replayed_whether_or_not_it_charged(account: Account, kind: Fault) -> None:
    """The response does not show whether it charged; only the ledger does."""
    account.admin.add_fault(kind)
    assert [account.fails("key-1").http_status, account.fails("key-1").http_status] == [500, 500]
    assert account.charges == (1 if kind is Fault.ERROR_500_AFTER else 0)


def test_a_validation_error_is_not_stored(account: Account) -> None:
    """The key can be used again, even with other parameters."""
    assert account.fails("key-1", amount=0).http_status == 400
    assert account.pay("key-1").status == "succeeded"


def test_a_key_is_deleted_after_24_hours(account: Account) -> None:
    """Then the same request charges again: the protocol creates nothing under a key this old."""
    account.stop_clock()
    account.pay("key-1")
    account.admin.advance_clock(DAY - 1)
    account.pay("key-1")
    assert account.charges == 1
    account.admin.advance_clock(2)
    account.pay("key-1")
    assert account.charges == 2


def test_a_key_in_use_is_never_deleted(account: Account) -> None:
    """Even if the clock passes 24 hours while its request runs."""
    account.admin.add_fault(Fault.LATENCY, seconds=PATIENCE_SECONDS)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(account.pay, "key-1")
        account.await_faults(1)
        account.admin.advance_clock(2 * DAY)
        error = account.fails("key-1")
        assert (error.http_status, getattr(error.error, "code", None)) == (409, "idempotency_key_in_use")
        account.end_latencies()
        assert first.result().status == "succeeded"
    assert account.charges == 1


def test_an_outage_affects_replays_and_reads_too(account: Account) -> None:
    """All requests get 503 during the outage; the stored response is replayed after it."""
    intent = account.pay("key-1")
    account.admin.add_fault(Fault.UNAVAILABLE_503, times=None)
    account.admin.add_fault(Fault.UNAVAILABLE_503, times=None, method="GET", path="/v1/payment_intents/*")
    assert account.fails("key-1").http_status == 503
    with pytest.raises(stripe.APIError):
        account.client.v1.payment_intents.retrieve(intent.id)
    account.admin.add_fault(Fault.ERROR_500_BEFORE)
    account.admin.clear_faults(Fault.UNAVAILABLE_503)
    assert account.fails("key-2").http_status == 500  # Only the outage is over.
    assert account.pay("key-1").id == intent.id


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"amount": 0}, "parameter_invalid_integer"),
        ({"amount": 1_000_000_000_000}, "amount_too_large"),
        ({"currency": "xxx"}, None),
        ({"payment_method": "pm_unknown"}, "resource_missing"),
        ({"color": "red"}, "parameter_unknown"),
        ({"automatic_payment_methods": {"enabled": True}}, None),
    ],
)
def test_bad_parameters_are_refused(account: Account, changes: dict[str, Any], code: str | None) -> None:
    """400 invalid_request_error, and nothing is charged."""
    error = account.fails(**changes)
    assert isinstance(error, stripe.InvalidRequestError)
    assert (error.http_status, error.code) == (400, code)
    assert account.charges == 0


def test_3d_secure_waits_for_the_customer(account: Account) -> None:
    """On session: requires_action; charged after the customer has authenticated."""
    intent = account.pay(payment_method="pm_card_threeDSecure2Required")
    assert (intent.status, account.charges) == ("requires_action", 0)
    account.admin.authenticate(intent.id)
    assert account.client.v1.payment_intents.retrieve(intent.id).status == "succeeded"
    assert account.charges == 1


def test_a_trickling_response_outlives_a_read_timeout(account: Account) -> None:
    """The response breaks off when the fault ends; the charge has happened."""
    account.admin.add_fault(Fault.HANG_AFTER, seconds=4)
    account.client = account.client_with("sk_test_x", read_seconds=3)
    error = account.fails("key-1")
    assert not isinstance(error, stripe.APIConnectionError)
    assert error.http_status == 200
    assert account.pay("key-1").status == "succeeded"
    assert account.charges == 1


def test_a_fault_applies_only_to_matching_requests(account: Account) -> None:
    """By any parameter, after the first `skip` matches."""
    account.admin.add_fault(Fault.RATE_LIMIT_429, {"amount": "4711"}, skip=1)
    statuses = [account.pay(amount=amount).status for amount in (1099, 4711)]
    assert statuses == ["succeeded", "succeeded"]
    assert account.fails(amount=4711).http_status == 429
    assert account.pay(amount=4711).status == "succeeded"
