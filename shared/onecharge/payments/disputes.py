"""A charge's dispute, and which of several the payment's row shows."""

from collections.abc import Iterable
from typing import NamedTuple

from onecharge.contract.refund_events import is_refundable_despite


class Dispute(NamedTuple):
    """A charge's dispute."""

    dispute_id: str
    status: str

    @property
    def needs_response(self) -> bool:
        """Whether Stripe is waiting for our evidence in a dispute, an inquiry or an appeal."""
        return self.status.endswith("needs_response")

    @property
    def took_nothing(self) -> bool:
        """Whether it left the money with us."""
        return is_refundable_despite(self.status)

    @staticmethod
    def that_counts(newest_first: "Iterable[Dispute]") -> "Dispute | None":
        """The newest of a payment's disputes, preferring those that take or took money."""
        return min(newest_first, key=lambda each: each.took_nothing, default=None)
