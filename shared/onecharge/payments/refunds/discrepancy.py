"""How a refund's row and its refunds at Stripe differ, for webhooks and the scheduled run. Pure, as protocol.py."""

from collections.abc import Sequence
from enum import StrEnum

from onecharge.contract.refunds import RefundState
from onecharge.payments.refunds.protocol import FoundRefund, Refund


class Discrepancy(StrEnum):
    """How Stripe's refunds of one refund id differ from its row."""

    NONE = "row and Stripe agree, or a worker will finalize the row"
    RETURNED = "it failed, whatever the row says: the row becomes FAILED"
    LOST_ROW = "it failed, and there is no row: the row is written anew as FAILED"
    MADE_AFTER_FAILED = "the row says FAILED, and Stripe shows a refund"
    SEVERAL = "several refunds of one id"


def find_discrepancy(refund: Refund | None, found: Sequence[FoundRefund]) -> Discrepancy:
    """Compare. `found` is complete, so the order and the number of events do not matter.

    A PENDING row takes the failure as well: its worker may have read `pending` before, and would write SUCCEEDED after
    the only event that says otherwise.
    """
    live = [each for each in found if each.status not in ("failed", "canceled")]
    if len(found) > 1:
        return Discrepancy.SEVERAL
    if live:
        is_failed = refund is not None and refund.state is RefundState.FAILED
        return Discrepancy.MADE_AFTER_FAILED if is_failed else Discrepancy.NONE
    if not found:
        return Discrepancy.NONE
    if refund is None:
        return Discrepancy.LOST_ROW
    is_unaware = refund.state in (RefundState.PENDING, RefundState.SUCCEEDED)
    return Discrepancy.RETURNED if is_unaware else Discrepancy.NONE
