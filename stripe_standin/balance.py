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


@dataclass(frozen=True)
class BalanceTransaction:
    """A movement of money, in the currency of its source and without a fee."""

    named: ClassVar = ("balance transaction", "id")
    id: str
    source: str
    amount: int
    """In minor units: positive to the account, negative from it."""
    currency: str
    reporting_category: str
    created: int

    def as_json(self) -> dict[str, Any]:
        return {
            **shown(self, ("id", "amount", "created", "currency", "reporting_category", "source")),
            "object": "balance_transaction",
            "available_on": self.created,
            "balance_type": "payments",
            "description": None,
            "exchange_rate": None,
            "fee": 0,
            "fee_details": [],
            "net": self.amount,
            "status": "available",
            "type": _TYPES.get(self.reporting_category, self.reporting_category),
        }


def id_for(source: str, category: str = "") -> str:
    """The id of the transaction that an object caused: `txn_` and the object's own characters."""
    return f"txn_{source.partition('_')[2]}{_SUFFIXES.get(category, '')}"


def book(account: Account, category: str, source: str, amount: int, currency: str) -> BalanceTransaction:
    """Book a movement of this reporting category: a positive amount goes to the account, a negative one from it."""
    booked = BalanceTransaction(id_for(source, category), source, amount, currency, category, account.now)
    account.all(BalanceTransaction)[booked.id] = booked
    return booked
