"""The stand-in behaves as Stripe documents, through Stripe's client over HTTP."""

import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import stripe

from local.stripe_standin.faults import Fault
from testing.harness import PATIENCE_SECONDS
from testing.standin_account import Account

DAY = 24 * 3600


def test_a_charge_is_in_the_ledger(account: Account) -> None:
    """With its order, attempt, amount and idempotency key."""
    intent = account.pay("key-1")
    [charge] = account.admin.ledger().charges_of("ord_1")
    assert (intent.status, charge.payment_intent_id) == ("succeeded", intent.id)
    assert (charge.attempt, charge.amount_minor, charge.currency, charge.idempotency_key) == ("1", 1099, "EUR", "key-1")


def test_a_key_replays_its_first_response(account: Account) -> None:
    """The same PaymentIntent with Idempotent-Replayed, and no second charge."""
    first, second = account.pay("key-1"), account.pay("key-1")
    assert first.id == second.id
    assert second.last_response is not None
    assert second.last_response.headers["Idempotent-Replayed"] == "true"
    assert account.charges == 1


def test_without_a_key_every_request_charges(account: Account) -> None:
    """Two requests, two charges."""
    account.pay()
    account.pay()
    assert account.charges == 2


def test_a_decline_is_replayed(account: Account) -> None:
    """402 with the PaymentIntent inside; another card with the same key is an idempotency_error."""
    for _ in range(2):
        error = account.fails("key-1", payment_method="pm_card_visa_chargeDeclinedInsufficientFunds")
        assert isinstance(error, stripe.CardError)
        assert (error.http_status, error.code) == (402, "card_declined")
        assert error.error is not None
        assert error.error.decline_code == "insufficient_funds"
        assert error.error.payment_intent is not None
        assert error.error.payment_intent.status == "requires_payment_method"
    assert isinstance(account.fails("key-1"), stripe.IdempotencyError)
    assert account.charges == 0


@pytest.mark.parametrize("kind", [Fault.ERROR_500_BEFORE, Fault.ERROR_500_AFTER])
def test_a_500_is_replayed_whether_or_not_it_charged(account: Account, kind: Fault) -> None:
    """The response does not show whether it charged; only the ledger does."""
    account.admin.add_fault(kind)
    assert [account.fails("key-1").http_status, account.fails("key-1").http_status] == [500, 500]
    assert account.charges == (1 if kind is Fault.ERROR_500_AFTER else 0)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Fault.RATE_LIMIT_429, 429),
        (Fault.UNAVAILABLE_503, 503),
        (Fault.UNAUTHORIZED_401, 401),
        (Fault.DROP_BEFORE, None),
    ],
)
def test_a_request_that_was_not_executed_is_not_stored(account: Account, kind: Fault, status: int | None) -> None:
    """A retry with the same key succeeds."""
    account.admin.add_fault(kind)
    assert account.fails("key-1").http_status == status
    assert account.pay("key-1").status == "succeeded"


def test_a_validation_error_is_not_stored(account: Account) -> None:
    """The key can be used again, even with other parameters."""
    assert account.fails("key-1", amount=0).http_status == 400
    assert account.pay("key-1").status == "succeeded"


def test_a_lost_response_is_stored(account: Account) -> None:
    """The charge happened; a retry with the key gets its response."""
    account.admin.add_fault(Fault.DROP_AFTER)
    assert isinstance(account.fails("key-1"), stripe.APIConnectionError)
    assert account.charges == 1
    assert account.pay("key-1").status == "succeeded"
    assert account.charges == 1


def test_a_key_for_other_parameters_or_another_endpoint_is_refused(account: Account) -> None:
    """idempotency_error: keys are account-wide."""
    intent = account.pay("key-1")
    assert isinstance(account.fails("key-1", amount=1), stripe.IdempotencyError)
    with pytest.raises(stripe.IdempotencyError):
        account.client.v1.payment_intents.confirm(intent.id, {}, {"idempotency_key": "key-1"})


def test_a_key_in_use_is_a_conflict(account: Account) -> None:
    """409 idempotency_key_in_use while the first request runs."""
    account.admin.add_fault(Fault.LATENCY, seconds=PATIENCE_SECONDS)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(account.pay, "key-1")
        account.await_faults(1)
        error = account.fails("key-1")
        account.end_latencies()
        assert first.result().status == "succeeded"
    assert error.http_status == 409
    assert error.error is not None
    assert error.error.code == "idempotency_key_in_use"
    assert account.charges == 1


def test_a_key_is_deleted_after_24_hours(account: Account) -> None:
    """Then the same request charges again; the protocol's lookup of old orders is for this."""
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
        assert account.fails("key-1").http_status == 409
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
    account.admin.clear_faults()
    assert account.pay("key-1").id == intent.id


def test_fifty_threads_with_one_key_make_one_charge(account: Account) -> None:
    """Each thread gets the response, a replay or a 409."""
    barrier = threading.Barrier(50)

    def pay() -> str:
        barrier.wait()
        try:
            return account.pay("key-1").id
        except stripe.StripeError as error:
            return str(error.http_status)

    with ThreadPoolExecutor(50) as threads:
        responses = {future.result() for future in [threads.submit(pay) for _ in range(50)]}
    assert account.charges == 1
    assert len(responses - {"409"}) == 1


def test_a_wrong_api_key_is_refused(account: Account) -> None:
    """401, and nothing is stored."""
    account.client = account.client_with("pk_test_x")
    assert isinstance(account.fails("key-1"), stripe.AuthenticationError)
    account.client = account.client_with("sk_test_x")
    assert account.pay("key-1").status == "succeeded"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"amount": 0}, "parameter_invalid_integer"),
        ({"amount": 100_000_000}, "amount_too_large"),
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


def test_3d_secure_off_session_is_a_decline(account: Account) -> None:
    """402 authentication_required."""
    error = account.fails(payment_method="pm_card_authenticationRequired", off_session=True)
    assert (error.http_status, error.code) == (402, "authentication_required")


def test_a_succeeded_payment_intent_cannot_be_confirmed_again(account: Account) -> None:
    """400 payment_intent_unexpected_state: at most one charge."""
    intent = account.pay()
    with pytest.raises(stripe.InvalidRequestError) as failed:
        account.client.v1.payment_intents.confirm(intent.id)
    assert failed.value.code == "payment_intent_unexpected_state"
    assert account.charges == 1


def test_the_list_is_immediate_and_pages(account: Account) -> None:
    """Newest first, by cursor; it does not filter by metadata."""
    ids = [account.pay().id for _ in range(5)]
    page = account.client.v1.payment_intents.list({"limit": 2})
    assert [intent.id for intent in page.auto_paging_iter()] == list(reversed(ids))
    by_metadata = {"metadata": {"order_id": "ord_1"}}
    with pytest.raises(stripe.InvalidRequestError):
        account.client.v1.payment_intents.list(by_metadata)  # type: ignore[arg-type]  # Stripe knows no such filter.


def test_search_filters_by_metadata_and_lags(account: Account) -> None:
    """A PaymentIntent younger than the lag is not found."""
    intent = account.pay()
    query = "metadata['order_id']:'ord_1' AND metadata['attempt']:'1'"
    account.admin.settings(search_lag_seconds=60)
    assert account.client.v1.payment_intents.search({"query": query}).data == []
    account.admin.advance_clock(61)
    assert [found.id for found in account.client.v1.payment_intents.search({"query": query}).data] == [intent.id]


def test_no_more_is_refunded_than_was_paid(account: Account) -> None:
    """In parts, until nothing is left."""
    intent = account.pay()
    account.client.v1.refunds.create({"payment_intent": intent.id, "amount": 1000})
    with pytest.raises(stripe.InvalidRequestError):
        account.client.v1.refunds.create({"payment_intent": intent.id, "amount": 100})
    account.client.v1.refunds.create({"payment_intent": intent.id})
    with pytest.raises(stripe.InvalidRequestError) as failed:
        account.client.v1.refunds.create({"payment_intent": intent.id})
    assert failed.value.code == "charge_already_refunded"


def test_webhooks_are_signed_as_stripe_signs_them(account: Account) -> None:
    """Stripe's library accepts each delivery, duplicates too, and refuses a changed body."""
    received: list[tuple[bytes, str]] = []
    account.pay()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # http.server requires this name.
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((body, self.headers["Stripe-Signature"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        account.admin.settings(webhook_url=f"http://127.0.0.1:{server.server_port}/", webhook_secret="whsec_1")
        assert account.admin.deliver_webhooks([2, 0, 2]) == [200, 200, 200]
        server.shutdown()
    types = [stripe.Webhook.construct_event(body, header, "whsec_1").type for body, header in received]
    assert types == ["payment_intent.succeeded", "payment_intent.created", "payment_intent.succeeded"]
    with pytest.raises(stripe.SignatureVerificationError):
        stripe.Webhook.construct_event(received[0][0] + b" ", received[0][1], "whsec_1")


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
