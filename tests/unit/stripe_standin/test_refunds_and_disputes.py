"""What may befall a charge after it succeeded: refunds that settle, wait or fail, and disputes."""

from typing import Any

import pytest
import stripe

from testing.standin_account import Account


def paid(account: Account, card: str = "pm_card_visa") -> stripe.PaymentIntent:
    return account.confirm(account.create().id, card)


def refund(account: Account, intent: stripe.PaymentIntent, **given: Any) -> stripe.Refund:
    params: Any = {"payment_intent": intent.id, **given}
    return account.client.v1.refunds.create(params)


def last_events(account: Account, number: int) -> list[tuple[str, dict[str, Any]]]:
    return [(event["type"], event["data"]["object"]) for event in account.admin.events()[-number:]]


def test_a_refund_has_two_events(account: Account) -> None:
    """`refund.created` with the Refund, `charge.refunded` with the Charge, which has the PaymentIntent's metadata."""
    intent = paid(account)
    made = refund(account, intent, amount=99, reason="requested_by_customer", metadata={"refund_id": "rfd_1"})
    (created, its_refund), (refunded, charge) = last_events(account, 2)
    assert (created, refunded) == ("refund.created", "charge.refunded")
    assert (its_refund["object"], its_refund["id"], its_refund["status"]) == ("refund", made.id, "succeeded")
    assert its_refund["metadata"] == {"refund_id": "rfd_1"}
    assert (charge["object"], charge["payment_intent"]) == ("charge", intent.id)
    assert (charge["amount_refunded"], charge["refunded"]) == (99, False)
    assert charge["metadata"] == {"order_id": "ord_1", "generation": "1"}
    refund(account, intent)
    assert last_events(account, 1)[0][1]["refunded"] is True


def test_a_refund_is_found_again(account: Account) -> None:
    """By its id, and in the list of its PaymentIntent."""
    intent = paid(account)
    made = refund(account, intent, amount=99)
    assert account.client.v1.refunds.retrieve(made.id).to_dict() == made.to_dict()
    assert [each.id for each in account.client.v1.refunds.list({"payment_intent": intent.id}).data] == [made.id]


@pytest.mark.parametrize("how", ["admin", "clock"])
def test_a_refund_fails_after_it_succeeded(account: Account, how: str) -> None:
    """pm_card_refundFail: in time, or when the test says so; the money can be refunded again."""
    intent = paid(account, "pm_card_refundFail")
    made = refund(account, intent)
    assert made.status == "succeeded"
    if how == "admin":
        account.admin.fail_refund(made.id)
    else:
        account.admin.advance_clock(601)
    failed = account.client.v1.refunds.retrieve(made.id)
    assert (failed.status, failed.failure_reason) == ("failed", "expired_or_canceled_card")
    assert failed.failure_balance_transaction is not None
    types = [type_ for type_, _ in last_events(account, 3)]
    assert types == ["charge.refund.updated", "refund.updated", "refund.failed"]
    assert account.client.v1.charges.retrieve(str(intent.latest_charge)).amount_refunded == 0
    assert refund(account, intent).status == "succeeded"


@pytest.mark.parametrize("how", ["admin", "clock"])
def test_a_pending_refund_succeeds_later(account: Account, how: str) -> None:
    """pm_card_pendingRefund, with `refund.updated`."""
    made = refund(account, paid(account, "pm_card_pendingRefund"))
    assert made.status == "pending"
    if how == "admin":
        account.admin.settle_refund(made.id)
    else:
        account.admin.advance_clock(601)
    assert account.client.v1.refunds.retrieve(made.id).status == "succeeded"
    assert last_events(account, 1)[0][0] == "refund.updated"
    assert account.admin.events()[-1]["data"]["previous_attributes"] == {"status": "pending"}


def test_any_refund_can_be_made_to_fail(account: Account) -> None:
    """For a reason."""
    made = refund(account, paid(account))
    account.admin.fail_refund(made.id, reason="lost_or_stolen_card")
    assert account.client.v1.refunds.retrieve(made.id).failure_reason == "lost_or_stolen_card"


def test_what_was_never_paid_is_not_refunded(account: Account) -> None:
    """400 without a code."""
    with pytest.raises(stripe.InvalidRequestError) as refused:
        refund(account, account.create())
    assert (refused.value.http_status, refused.value.code) == (400, None)


def test_a_dispute_opens_and_closes(account: Account) -> None:
    """With Dispute objects, which have none of the charge's metadata; what is disputed is not refunded."""
    intent = paid(account)
    dispute = account.admin.open_dispute(intent.id, reason="product_not_received")
    type_, opened = last_events(account, 1)[0]
    assert (type_, opened["object"], opened["id"]) == ("charge.dispute.created", "dispute", dispute)
    assert (opened["status"], opened["charge"], opened["metadata"]) == ("needs_response", intent.latest_charge, {})
    assert opened["payment_intent"] == intent.id
    with pytest.raises(stripe.InvalidRequestError) as refused:
        refund(account, intent)
    assert refused.value.code == "charge_disputed"
    account.admin.close_dispute(dispute, status="lost")
    type_, closed = last_events(account, 1)[0]
    assert (type_, closed["status"]) == ("charge.dispute.closed", "lost")
    assert account.client.v1.disputes.retrieve(dispute).status == "lost"


def test_a_test_card_is_disputed_as_it_pays(account: Account) -> None:
    """Between the Charge's event and the PaymentIntent's."""
    paid(account, "pm_card_createDispute")
    types = ["charge.succeeded", "charge.dispute.created", "payment_intent.succeeded"]
    assert [type_ for type_, _ in last_events(account, 3)] == types
