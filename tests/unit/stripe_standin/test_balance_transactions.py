"""Balance transactions: each movement of money is booked once, with its sign and its source."""

from typing import Any

import pytest
import stripe

from testing.standin_account import Account


def booked(account: Account, **parameters: Any) -> list[stripe.BalanceTransaction]:
    """All transactions, newest first, with the objects that caused them."""
    given: Any = {"limit": 100, "expand": ["data.source"], **parameters}
    return account.client.v1.balance_transactions.list(given).data


def short(transactions: list[stripe.BalanceTransaction]) -> list[tuple[str, str, int, str]]:
    """Type, reporting category, amount and kind of source; oldest first."""
    return [
        (each.type, each.reporting_category, each.amount, str(getattr(each.source, "object", None)))
        for each in reversed(transactions)
    ]


def test_a_charge_is_booked_with_its_fee(account: Account) -> None:
    """The transaction that the Charge names: its amount, Stripe's fee, and what is left."""
    intent = account.pay(expand=["latest_charge.balance_transaction"])
    charge: Any = intent.latest_charge
    [transaction] = booked(account)
    assert charge.balance_transaction.id == transaction.id
    assert short([transaction]) == [("charge", "charge", 1099, "charge")]
    assert (transaction.fee, transaction.net) == (41, 1058)
    source: Any = transaction.source
    assert (source.id, source.metadata["order_id"]) == (charge.id, "ord_1")
    retrieved = account.client.v1.balance_transactions.retrieve(transaction.id)
    assert (retrieved.id, retrieved.source) == (transaction.id, charge.id)


def test_a_replay_and_a_decline_book_nothing(account: Account) -> None:
    """One charge, however often its request is sent; a failed charge moves no money."""
    account.pay("key")
    account.pay("key")
    account.fails(payment_method="pm_card_chargeDeclined")
    assert [each.amount for each in booked(account)] == [1099]


def test_a_refund_and_its_failure_are_booked(account: Account) -> None:
    """The refund takes the money when it is created; a failure returns it."""
    intent = account.pay(payment_method="pm_card_refundFail")
    refund = account.client.v1.refunds.create({"payment_intent": intent.id, "amount": 99})
    account.admin.fail_refund(refund.id)
    assert short(booked(account))[1:] == [
        ("refund", "refund", -99, "refund"),
        ("refund_failure", "refund_failure", 99, "refund"),
    ]
    failed = account.client.v1.refunds.retrieve(refund.id)
    newest, before, _ = booked(account)
    assert (failed.balance_transaction, failed.failure_balance_transaction) == (before.id, newest.id)


def test_a_dispute_is_an_adjustment(account: Account) -> None:
    """It takes the money and a fee; won, the money comes back. Only the reporting category says what it is."""
    intent = account.pay()
    dispute = account.admin.open_dispute(intent.id)
    account.admin.close_dispute(dispute, status="won")
    assert short(booked(account))[1:] == [
        ("adjustment", "dispute", -1099, "dispute"),
        ("adjustment", "dispute_reversal", 1099, "dispute"),
    ]
    shown = account.client.v1.disputes.retrieve(dispute).balance_transactions
    assert [each.id for each in shown] == [each.id for each in reversed(booked(account)[:2])]


def test_transactions_are_listed_by_range_and_page(account: Account) -> None:
    """By the time of the movement, newest first, with a cursor; by type and source, too."""
    for _ in range(3):
        account.pay()
        account.admin.advance_clock(3600)
    oldest = booked(account)[-1]
    later = booked(account, created={"gt": oldest.created})
    assert len(later) == 2
    page = account.client.v1.balance_transactions.list({"limit": 2})
    assert (len(page.data), page.has_more) == (2, True)
    assert [each.id for each in page.next_page().data] == [oldest.id]
    assert booked(account, type="refund") == []
    assert len(booked(account, source=str(getattr(oldest.source, "id", None)))) == 1


def test_the_money_is_available_later(account: Account) -> None:
    """Pending at first; nothing of another account is shown."""
    account.pay()
    [transaction] = booked(account)
    assert transaction.status == "pending"
    account.admin.advance_clock(3 * 24 * 3600)
    assert booked(account)[0].status == "available"
    account.admin.assign_api_key("sk_test_other", "acct_other")
    other = account.client_with("sk_test_other")
    assert other.v1.balance_transactions.list().data == []
    with pytest.raises(stripe.InvalidRequestError):
        other.v1.balance_transactions.retrieve(transaction.id)
