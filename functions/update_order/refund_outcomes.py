"""The outcome of a refund, written to it and to its order: a refund that has ended reserves nothing."""

from collections.abc import Callable

from aws_lambda_powertools import Logger

from onecharge.contract.refund_events import RefundOutcome, RefundOutcomeEvent, RefundState
from onecharge.orders.refund_schema import STATE_OF, StoredRefund, rank
from onecharge.orders.refund_store import OrderRefundStore, pending_minor
from onecharge.orders.store import OrderStore
from onecharge.runtime.alarms import Cause, RowMissing
from onecharge.runtime.consumer import Disposition, Done
from onecharge.runtime.metrics import Alarm

_TRIES = 4
"""How often others may write the order or the refund meanwhile, before the message is retried."""


class NoSuchRefund(RowMissing):
    """The tables have no such refund, or no such order: the message is retried, and ends in the DLQ."""


class RefundConflict(Exception):
    """The refund has other money than the outcome, or keeps changing. The message is retried."""


def update_refund(
    event: RefundOutcomeEvent,
    *,
    orders: OrderStore,
    refunds: OrderRefundStore,
    logger: Logger,
    count: Callable[[str], None],
) -> Disposition:
    """Write one outcome, unless a later one is written. Raises NoSuchRefund, RefundConflict."""
    outcome, state = event.data, STATE_OF[event.type]
    fields = {"status": state, "refund_id": outcome.refund_id, **event.log_fields}
    for _ in range(_TRIES):
        order, all_refunds = orders.find(outcome.order_id), refunds.of_order(outcome.order_id)
        refund = next((each for each in all_refunds if each.refund_id == outcome.refund_id), None)
        if order is None or refund is None:
            raise NoSuchRefund(outcome.refund_id)
        if (refund.amount_minor, refund.currency) != (outcome.amount_minor, outcome.currency):
            raise RefundConflict(outcome.refund_id)
        to = state if is_later(refund, outcome, state) else None
        if to is None and order.pending_refunds_minor == pending_minor(all_refunds):
            count("RefundUpdateIgnored")
            logger.info("refund update ignored: stale or duplicate", extra=fields)
            return Done()
        if refunds.write_outcome(order, all_refunds, refund, outcome, to):
            break
    else:
        raise RefundConflict(outcome.refund_id)
    logger.info("refund updated" if to else "the order's pending refunds counted anew", extra=fields)
    if to is RefundState.FAILED:
        count(Alarm(Cause.REFUND_FAILED))
        said = "a bank returned the refund" if outcome.stripe_refund_id else "Stripe refused the refund"
        about = {"failure_code": outcome.failure_code, "cause": Cause.REFUND_FAILED, **fields}
        logger.error(f"{said}: find out what the customer has, before it is paid again", extra=about)
    return Done()


def is_later(refund: StoredRefund, outcome: RefundOutcome, state: RefundState) -> bool:
    """Whether the outcome is later than what is stored: by rank, not by arrival. A success may be told anew."""
    told, stored = rank(state, outcome.stripe_refund_id), rank(refund.status, refund.stripe_refund_id)
    is_same = told == stored and state is RefundState.SUCCEEDED
    is_new = (outcome.stripe_refund_id, outcome.pending_reason) != (refund.stripe_refund_id, refund.pending_reason)
    return told > stored or (is_same and is_new and outcome.occurred_at.isoformat() > (refund.told_at or ""))
