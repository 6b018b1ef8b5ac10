"""Refunds that succeed, stay pending or fail; disputes."""

from typing import Any

import pytest
import stripe

from stripe_standin.tests.standin_account import Account


def paid(account: Account, card: str = "pm_card_visa") -> stripe.PaymentIntent:
    return account.confirm(account.create().id, card)


def create_refund(account: Account, intent: stripe.PaymentIntent, **parameters: Any) -> stripe.Refund:
    given: Any = {"payment_intent": intent.id, **parameters}
    return account.client.v1.refunds.create(given)


def last_events(account: Account, number: int) -> list[tuple[str, dict[str, Any]]]:
    return [(event["type"], event["data"]["object"]) for event in account.admin.events()[-number:]]


def test_a_refund_emits_two_events(account: Account) -> None:
    """`refund.created` with the Refund; `charge.refunded` with the Charge and the PaymentIntent's metadata."""
    intent = paid(account)
    refund = create_refund(account, intent, amount=99, reason="requested_by_customer", metadata={"refund_id": "rfd_1"})
    (created, its_refund), (refunded, charge) = last_events(account, 2)
    assert (created, refunded) == ("refund.created", "charge.refunded")
    assert (its_refund["object"], its_refund["id"], its_refund["status"]) == ("refund", refund.id, "succeeded")
    assert its_refund["metadata"] == {"refund_id": "rfd_1"}
    assert (charge["object"], charge["payment_intent"]) == ("charge", intent.id)
    assert (charge["amount_refunded"], charge["refunded"]) == (99, False)
    assert charge["metadata"] == {"shop": "shop_1", "order_id": "ord_1"}
    create_refund(account, intent)
    assert last_events(account, 1)[0][1]["refunded"] is True


@pytest.mark.parametrize("how", ["admin", "clock"])
def test_a_succeeded_refund_can_fail_later(account: Account, how: str) -> None:
    """pm_card_refundFail: after ten minutes or an admin call; the amount can be refunded again."""
    intent = paid(account, "pm_card_refundFail")
    refund = create_refund(account, intent)
    assert refund.status == "succeeded"
    if how == "admin":
        account.admin.fail_refund(refund.id)
    else:
        account.admin.advance_clock(601)
    failed = account.client.v1.refunds.retrieve(refund.id)
    assert (failed.status, failed.failure_reason) == ("failed", "expired_or_canceled_card")
    assert failed.failure_balance_transaction is not None
    types = [type_ for type_, _ in last_events(account, 3)]
    assert types == ["charge.refund.updated", "refund.updated", "refund.failed"]
    assert account.client.v1.charges.retrieve(str(intent.latest_charge)).amount_refunded == 0
    assert create_refund(account, intent).status == "succeeded"


def test_a_pending_refund_succeeds_later(account: Account) -> None:
    """pm_card_pendingRefund: after ten minutes, with `refund.updated`."""
    refund = create_refund(account, paid(account, "pm_card_pendingRefund"))
    assert refund.status == "pending"
    account.admin.advance_clock(601)
    assert account.client.v1.refunds.retrieve(refund.id).status == "succeeded"
    assert last_events(account, 1)[0][0] == "refund.updated"
    assert account.admin.events()[-1]["data"]["previous_attributes"] == {"status": "pending"}


def test_an_unpaid_payment_intent_is_not_refunded(account: Account) -> None:
    """400 without a code."""
    with pytest.raises(stripe.InvalidRequestError) as refused:
        create_refund(account, account.create())
    assert (refused.value.http_status, refused.value.code) == (400, None)


def test_a_dispute_opens_and_closes(account: Account) -> None:
    """The events have Dispute objects without the charge's metadata; a disputed charge is not refunded."""
    intent = paid(account)
    dispute = account.admin.open_dispute(intent.id, reason="product_not_received")
    (type_, opened), (withdrawn, _) = last_events(account, 2)
    assert withdrawn == "charge.dispute.funds_withdrawn"
    assert (type_, opened["object"], opened["id"]) == ("charge.dispute.created", "dispute", dispute)
    assert (opened["status"], opened["charge"], opened["metadata"]) == ("needs_response", intent.latest_charge, {})
    assert opened["payment_intent"] == intent.id
    with pytest.raises(stripe.InvalidRequestError) as refused:
        create_refund(account, intent)
    assert refused.value.code == "charge_disputed"
    account.admin.close_dispute(dispute, status="lost")
    type_, closed = last_events(account, 1)[0]
    assert (type_, closed["status"]) == ("charge.dispute.closed", "lost")
    assert account.client.v1.disputes.retrieve(dispute).status == "lost"


def test_a_test_card_opens_a_dispute(account: Account) -> None:
    """Its events are between those of the Charge and of the PaymentIntent."""
    paid(account, "pm_card_createDispute")
    disputed = ["charge.dispute.created", "charge.dispute.funds_withdrawn"]
    types = ["charge.succeeded", *disputed, "payment_intent.succeeded"]
    assert [type_ for type_, _ in last_events(account, 4)] == types
