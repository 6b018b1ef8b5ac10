"""The outcome of a refund, written to it and to its order: a refund that has ended reserves nothing."""

from collections.abc import Callable

from aws_lambda_powertools import Logger

from onecharge.contract.refund_events import RefundOutcomeEvent, RefundState
from onecharge.orders.refund_schema import rank
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.store import OrderStore
from onecharge.runtime.alarms import Cause, RowMissing
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage
from onecharge.runtime.metrics import Alarm

_TRIES = 4
"""How often others may write the order or the refund meanwhile, before the message is retried."""


def update_refund(
    event: RefundOutcomeEvent,
    *,
    orders: OrderStore,
    refunds: OrderRefundStore,
    logger: Logger,
    count: Callable[[str], None],
) -> Disposition:
    """Write one outcome, unless one of its rank or a higher one is written: its total is in the payment's own event.

    Raises RowMissing, PoisonMessage.
    """
    outcome = event.data
    for _ in range(_TRIES):
        order, stored = orders.find(outcome.order_id), refunds.of_order(outcome.order_id)
        refund = next((each for each in stored if each.refund_id == outcome.refund_id), None)
        if order is None or refund is None:
            raise RowMissing(outcome.refund_id)
        if (refund.amount_minor, refund.currency) != (outcome.amount_minor, outcome.currency):
            raise PoisonMessage("data.amount_minor: another amount or currency than was requested")
        told = refund.with_outcome(event)
        fields = {"status": told.status, "refund_id": told.refund_id, **event.log_fields}
        if rank(told) <= rank(refund):
            logger.info("refund update ignored: stale or duplicate", extra=fields)
            return Done()
        if refunds.store_outcome(told, order, outcome):
            break
    else:
        return BackOff()
    logger.info("refund updated", extra=fields)
    if told.status is RefundState.FAILED:
        count(Alarm(Cause.REFUND_FAILED))
        said = "a bank returned the refund" if told.stripe_refund_id else "Stripe refused the refund"
        about = {"failure_code": told.failure_code, "cause": Cause.REFUND_FAILED, **fields}
        logger.error(f"{said}: find out what the customer has, before it is paid again", extra=about)
    return Done()
