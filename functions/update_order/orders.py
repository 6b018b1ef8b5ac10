"""The outcome of a payment, written to its order: the status, Stripe's total of refunds, and a dispute."""

from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools import Logger

from onecharge.contract.events import EventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.store import OrderStatusConflict, OrderStore
from onecharge.orders.transitions import OUTCOMES, Transition
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import Disposition, Done
from onecharge.runtime.dynamodb import expression_values, to_item
from onecharge.runtime.metrics import Alarm

CLOSED_DISPUTES = ("lost", "warning_closed", "won")
"""Stripe's statuses of a dispute that is over (Stripe API reference, "Dispute", `status`)."""

_DO_NOT_TRY_AGAIN = "do_not_try_again"
_END_OF_LIST = 1_000
"""DynamoDB appends an element that is set beyond the end of a list; there are fewer attempts than this."""


def update_order(
    event: PaymentOutcomeEvent, *, orders: OrderStore, logger: Logger, count: Callable[[str], None]
) -> Disposition:
    """Write one outcome. Each fact is one conditional write that is idempotent by itself.

    Raises NoSuchOrder: the message is retried, and ends in the DLQ.
    """
    transition = OUTCOMES[event.type]
    conflicting = _move(orders, event.data, transition)
    _write_refunded(orders, event.data)
    _write_dispute(orders, event.data)
    count("OrderUpdateIgnored" if conflicting else f"Order.{transition.status}")
    message = "order update ignored: stale or duplicate" if conflicting else "order updated"
    logger.info(message, extra={"status": transition.status, **event.log_fields})
    if conflicting is OrderStatus.CANCELED and event.type is EventType.PAYMENT_SUCCEEDED:
        # Impossible by design. The payment service refunds it by itself; a person has to find the cause.
        count("CanceledOrderCharged")
        count(Alarm(Cause.MONEY_DIFFERS))
        ids = {"payment_intent_id": event.data.payment_intent_id, **event.log_fields}
        logger.error(
            "a canceled order was charged: the payment service refunds it, find the cause",
            extra={"cause": Cause.MONEY_DIFFERS, **ids},
        )
    return Done()


def _move(orders: OrderStore, outcome: PaymentOutcome, transition: Transition) -> OrderStatus | None:
    """Move the order. Returns None, or the status of an order that ignored the outcome."""
    changes, names, values = _changes(outcome, transition)
    # Another attempt's outcome says nothing about the present one, unless it is the whole payment's.
    conditions = [] if transition.of_any_attempt else ["attempt = :attempt"]
    try:
        orders.move(
            outcome.order_id,
            transition,
            at=outcome.occurred_at,
            changes=changes,
            names=names,
            values=values,
            conditions=conditions,
        )
    except OrderStatusConflict as conflict:
        return conflict.status
    return None


def _changes(outcome: PaymentOutcome, transition: Transition) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """The attributes that change with the status: the expression of each path, and the names and values in them."""
    changes: dict[str, str] = {}
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    if transition.status is not OrderStatus.CANCELED:
        # A cancellation is about the order. It does not change the outcome of an attempt.
        changes["outcomes.#attempt"], names["#attempt"] = ":outcome", str(outcome.attempt)
        values |= {":outcome": _attempt_outcome(outcome, transition.status), ":attempt": outcome.attempt}
    if transition.status is OrderStatus.PAID:
        changes |= {"paid_attempt": ":attempt", "paid_at": ":paid_at"}
        values[":paid_at"] = outcome.occurred_at.isoformat()
    if transition.status is OrderStatus.PAYMENT_DECLINED and outcome.advice_code == _DO_NOT_TRY_AGAIN:
        # The payment method of the present attempt, which is the one that was declined.
        changes[f"refused_payment_methods[{_END_OF_LIST}]"] = "payment_method"
    return changes, names, values


def _attempt_outcome(outcome: PaymentOutcome, status: OrderStatus) -> Mapping[str, str]:
    """What the order keeps of the attempt (onecharge.orders.schema.AttemptOutcome)."""
    codes = {"decline_code": outcome.decline_code, "advice_code": outcome.advice_code}
    return {"status": status, **{name: code for name, code in codes.items() if code}}


def _write_refunded(orders: OrderStore, outcome: PaymentOutcome) -> None:
    """Stripe's total of refunds, by the newest revision of the row: a stale or duplicate event changes nothing."""
    if outcome.amount_refunded_minor is None:
        return
    _write(
        orders,
        outcome.order_id,
        "SET stripe_refunded_minor = :refunded, stripe_refunded_revision = :revision",
        "attribute_not_exists(stripe_refunded_revision) OR stripe_refunded_revision < :revision",
        refunded=outcome.amount_refunded_minor,
        revision=outcome.revision,
    )


def _write_dispute(orders: OrderStore, outcome: PaymentOutcome) -> None:
    """The dispute's status; a closed dispute is not reopened by a stale event."""
    if outcome.dispute_status is None:
        return
    closed = {status: status for status in CLOSED_DISPUTES}
    was_open = f"NOT dispute_status IN ({', '.join(f':{status}' for status in closed)})"
    is_closed = outcome.dispute_status in closed
    _write(
        orders,
        outcome.order_id,
        "SET dispute_status = :dispute",
        "attribute_exists(order_id)" if is_closed else f"attribute_not_exists(dispute_status) OR {was_open}",
        dispute=outcome.dispute_status,
        **({} if is_closed else closed),
    )


def _write(orders: OrderStore, order_id: str, update: str, condition: str, **values: Any) -> None:
    try:
        orders.client.update_item(
            TableName=orders.table,
            Key=to_item({"order_id": order_id}),
            UpdateExpression=update,
            ConditionExpression=f"attribute_exists(order_id) AND ({condition})",
            ExpressionAttributeValues=expression_values(**values),
        )
    except orders.client.exceptions.ConditionalCheckFailedException:
        return
