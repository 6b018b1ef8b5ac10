"""What happened to an order's refunds: the moments that timeline.py has of them."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ops.facts import Facts


def refund_moments(facts: "Facts") -> Iterator[tuple[int, str, str]]:
    """When, where, what."""
    for refund in facts.refunds:
        if refund.requested is not None:
            asked = refund.requested
            at = int(datetime.fromisoformat(asked.requested_at).timestamp())
            yield at, "orders", f"{refund.refund_id} was requested: {asked.amount_minor} {asked.currency}"
        if refund.row is not None and refund.row.finalized_at is not None:
            code = f": {refund.row.failure_code}" if refund.row.failure_code else ""
            yield refund.row.finalized_at, "refunds", f"{refund.refund_id} became {refund.row.state}{code}"
