"""How Stripe's refunds of one refund id differ from its row: pure. No clock, no I/O."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from onecharge.contract.refunds import RefundState
from onecharge.payments.refund_rules import Refund, StripeRefund
from onecharge.runtime.alarms import Cause


class RefundDiscrepancy(StrEnum):
    """How Stripe's refunds of one refund id differ from its row."""

    NONE = "row and Stripe agree, or a worker will finalize the row"
    RETURNED = "it failed, whatever the row says: the row becomes FAILED"
    LOST_ROW = "it failed, and there is no row: the row is written again as FAILED"
    MADE_AFTER_FAILED = "the row says FAILED, and Stripe shows a refund"
    SEVERAL = "several refunds of one id"
    PENDING = "Stripe says another reason why it is pending, or sends it by now: the row says so"


REFUND_CAUSES: Mapping[RefundDiscrepancy, Cause] = {
    RefundDiscrepancy.RETURNED: Cause.REFUND_FAILED,
    RefundDiscrepancy.LOST_ROW: Cause.ROW_LOST,
    RefundDiscrepancy.MADE_AFTER_FAILED: Cause.MONEY_DIFFERS,
    RefundDiscrepancy.SEVERAL: Cause.MONEY_DIFFERS,
}


def find_refund_discrepancy(refund: Refund | None, found: Sequence[StripeRefund]) -> RefundDiscrepancy:
    """Compare the row with Stripe's refunds of its id: with all of them, so the order of events does not matter.

    A PENDING row takes the failure as well: its worker may have read `pending` before, and would write SUCCEEDED after
    the only event that says otherwise.
    """
    match found:
        case []:
            return RefundDiscrepancy.NONE
        case [one]:
            return _of_refund(refund, one)
        case _:
            return RefundDiscrepancy.SEVERAL


def _of_refund(refund: Refund | None, one: StripeRefund) -> RefundDiscrepancy:
    if refund is None:
        # One that was made has no row for a moment: its worker writes it.
        return RefundDiscrepancy.LOST_ROW if one.has_failed else RefundDiscrepancy.NONE
    if one.has_failed:
        is_unaware = refund.state in (RefundState.PENDING, RefundState.SUCCEEDED)
        return RefundDiscrepancy.RETURNED if is_unaware else RefundDiscrepancy.NONE
    if refund.state is RefundState.FAILED:
        return RefundDiscrepancy.MADE_AFTER_FAILED
    is_other = refund.state is RefundState.SUCCEEDED and refund.pending_reason != one.pending_reason
    return RefundDiscrepancy.PENDING if is_other else RefundDiscrepancy.NONE
