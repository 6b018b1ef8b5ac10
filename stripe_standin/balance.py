"""Balance transactions: one for each movement of money.

Source: Stripe API reference, "The Balance Transaction object"; Stripe documentation, "Reporting categories": a dispute
is a transaction of type `adjustment`, and only its reporting category says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stripe_standin.account import Account
from stripe_standin.errors import missing
from stripe_standin.messages import Request
from stripe_standin.parameters import allow

_AVAILABLE_AFTER_SECONDS = 2 * 24 * 3600
_FEE_PER_MILLE, _FEE_FIXED, _DISPUTE_FEE = 15, 25, 1500


@dataclass(frozen=True)
class BalanceTransaction:
    """A movement of money, in the currency of its source: nothing is converted."""

    id: str
    source: str
    amount: int
    """In minor units: positive to the account, negative from it."""
    currency: str
    type: str
    reporting_category: str
    created: int
    fee: int
    clock: Callable[[], float]

    def as_json(self) -> dict[str, Any]:
        available_on = self.created + _AVAILABLE_AFTER_SECONDS
        fee = {"application": None, "currency": self.currency, "description": "Stripe fees", "type": "stripe_fee"}
        return {
            "id": self.id,
            "object": "balance_transaction",
            "amount": self.amount,
            "available_on": available_on,
            "balance_type": "payments",
            "created": self.created,
            "currency": self.currency,
            "description": None,
            "exchange_rate": None,
            "fee": self.fee,
            "fee_details": [{**fee, "amount": self.fee}] if self.fee else [],
            "net": self.amount - self.fee,
            "reporting_category": self.reporting_category,
            "source": self.source,
            "status": "available" if self.clock() >= available_on else "pending",
            "type": self.type,
        }


def id_for(source: str, suffix: str = "") -> str:
    """The id of the transaction that an object caused: `txn_` and the object's own characters."""
    return f"txn_{source.partition('_')[2]}{suffix}"


def book_charge(account: Account, charge: str, amount: int, currency: str) -> None:
    """The money of a charge, less Stripe's fee."""
    fee = amount * _FEE_PER_MILLE // 1000 + _FEE_FIXED
    _book(account, id_for(charge), charge, amount, currency, "charge", "charge", fee)


def book_refund(account: Account, refund: str, amount: int, currency: str) -> None:
    """The money of a refund leaves the account when it is created."""
    _book(account, id_for(refund), refund, -amount, currency, "refund", "refund")


def book_refund_failure(account: Account, refund: str, amount: int, currency: str) -> None:
    """The money of a refund that failed comes back."""
    _book(account, id_for(refund, "_failure"), refund, amount, currency, "refund_failure", "refund_failure")


def book_dispute(account: Account, dispute: str, amount: int, currency: str) -> BalanceTransaction:
    """The disputed money is withdrawn, with a fee."""
    return _book(account, id_for(dispute), dispute, -amount, currency, "adjustment", "dispute", _DISPUTE_FEE)


def book_dispute_reversal(account: Account, dispute: str, amount: int, currency: str) -> BalanceTransaction:
    """The money of a dispute that was won comes back."""
    id_ = id_for(dispute, "_reversal")
    return _book(account, id_, dispute, amount, currency, "adjustment", "dispute_reversal")


def retrieve(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    allow(request)
    if identifier not in account.all(BalanceTransaction):
        raise missing("balance transaction", identifier, "id")
    return account.all(BalanceTransaction)[identifier].as_json()


def _book(
    account: Account,
    id_: str,
    source: str,
    amount: int,
    currency: str,
    type_: str,
    reporting_category: str,
    fee: int = 0,
) -> BalanceTransaction:
    booked = BalanceTransaction(
        id_, source, amount, currency, type_, reporting_category, account.now, fee, account.clock
    )
    account.all(BalanceTransaction)[id_] = booked
    return booked
