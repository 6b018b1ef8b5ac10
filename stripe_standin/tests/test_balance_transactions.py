"""Balance transactions: each movement of money is booked once, with its sign and its source."""

from typing import Any

import pytest
import stripe

from stripe_standin.tests.standin_account import Account


def booked(account: Account, **parameters: Any) -> list[stripe.BalanceTransaction]:
    """All transactions, newest first, with the objects that caused them."""
    given: Any = {"limit": 100, "expand": ["data.source"], **parameters}
    return account.client.v1.balance_transactions.list(given).data


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
