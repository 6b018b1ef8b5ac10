"""Balance transactions: one for each movement of money.

Source: Stripe API reference, "The Balance Transaction object"; Stripe documentation, "Reporting categories": a dispute
is a transaction of type `adjustment`, and only its reporting category says so.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from stripe_standin.account import Account, shown

_TYPES = {"dispute": "adjustment", "dispute_reversal": "adjustment"}
"""The type of a reporting category, if it has another name."""
_SUFFIXES = {"refund_failure": "_failure", "dispute_reversal": "_reversal"}
_FEE_PER_MILLE, _FEE_FIXED, _DISPUTE_FEE = 15, 25, 1500


@dataclass(frozen=True)
class BalanceTransaction:
    """A movement of money, in the currency of its source: nothing is converted."""

    named: ClassVar = ("balance transaction", "id")
    id: str
    source: str
    amount: int
    """In minor units: positive to the account, negative from it."""
    currency: str
    reporting_category: str
    created: int
    fee: int

    def as_json(self) -> dict[str, Any]:
        fee = {"application": None, "currency": self.currency, "description": "Stripe fees", "type": "stripe_fee"}
        return {
            **shown(self, ("id", "amount", "created", "currency", "fee", "reporting_category", "source")),
            "object": "balance_transaction",
            "available_on": self.created,
            "balance_type": "payments",
            "description": None,
            "exchange_rate": None,
            "fee_details": [{**fee, "amount": self.fee}] if self.fee else [],
            "net": self.amount - self.fee,
            "status": "available",
            "type": _TYPES.get(self.reporting_category, self.reporting_category),
        }


def id_for(source: str, category: str = "") -> str:
    """The id of the transaction that an object caused: `txn_` and the object's own characters."""
    return f"txn_{source.partition('_')[2]}{_SUFFIXES.get(category, '')}"


def book(account: Account, category: str, source: str, amount: int, currency: str) -> BalanceTransaction:
    """Book a movement of this reporting category: a positive amount goes to the account, a negative one from it."""
    fees = {"charge": amount * _FEE_PER_MILLE // 1000 + _FEE_FIXED, "dispute": _DISPUTE_FEE}
    id_, fee = id_for(source, category), fees.get(category, 0)
    booked = BalanceTransaction(id_, source, amount, currency, category, account.now, fee)
    account.all(BalanceTransaction)[id_] = booked
    return booked
