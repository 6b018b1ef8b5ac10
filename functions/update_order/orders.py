"""The outcome of a payment, written to its order: the status, Stripe's total of refunds, and a dispute.

The order keeps the revision of the payment's row that it has seen: an outcome of an older one changes nothing, unless
it is final at Stripe. An outcome counts only if its money is the order's.
"""

from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools import Logger

from onecharge.contract.events import DO_NOT_TRY_AGAIN, NO_ATTEMPT_LEFT, PaymentOutcome, PaymentOutcomeEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStatusConflict, OrderStore
from onecharge.orders.transitions import CONDITION_OF_ATTEMPT, OUTCOMES, REVIEW_OTHER_MONEY, Transition
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import Disposition, Done
from onecharge.runtime.dynamodb import set_expression, to_item
from onecharge.runtime.metrics import Alarm

_END_OF_LIST = 1_000
"""DynamoDB appends an element that is set beyond the end of a list; there are fewer attempts than this."""
_IS_ITS_MONEY = "amount_minor = :amount AND currency = :currency"
_IS_NEWER = "(attribute_not_exists(payment_revision) OR payment_revision < :revision)"


def update_order(
    event: PaymentOutcomeEvent, *, orders: OrderStore, logger: Logger, count: Callable[[str], None]
) -> Disposition:
    """Write one outcome, in one conditional write; one more if only refunds or a dispute are new.

    Raises NoSuchOrder: the message is retried, and ends in the DLQ.
    """
    outcome, transition = event.data, OUTCOMES[event.type]
    unmoved, is_written = _move(orders, outcome, transition), False
    if unmoved and unmoved.money_differs_from(outcome):
        transition = REVIEW_OTHER_MONEY
        unmoved = _move_to_review(orders, event, unmoved, logger, count)
    elif unmoved:
        is_written = _write_facts(orders, outcome)
    if is_written:
        count("OrderFactsUpdated")
        message = "refunds and dispute of the order updated"
    else:
        count("OrderUpdateIgnored" if unmoved else f"Order.{transition.status}")
        message = "order update ignored: stale or duplicate" if unmoved else "order updated"
    logger.info(message, extra={"status": transition.status, **event.log_fields})
    is_charged = transition.status is OrderStatus.PAID
    if unmoved and unmoved.status is OrderStatus.CANCELED and is_charged:
        # The rules exclude it. The payment service refunds it only while its row is CANCELED, which this one is not.
        count("CanceledOrderCharged")
        count(Alarm(Cause.MONEY_DIFFERS))
        ids = {"payment_intent_id": outcome.payment_intent_id, **event.log_fields}
        logger.error(
            "a canceled order was charged: `python -m ops explain` says whether it is refunded; find the cause",
            extra={"cause": Cause.MONEY_DIFFERS, **ids},
        )
    return Done()


def _move(orders: OrderStore, outcome: PaymentOutcome, transition: Transition) -> StoredOrder | None:
    """Move the order. Returns None, or the order that ignores the outcome."""
    changes, names, values = _changes(outcome, transition)
    conditions = [_IS_ITS_MONEY]
    if not transition.is_terminal:
        conditions.append(_IS_NEWER)
    if not transition.of_any_attempt:
        conditions.append(CONDITION_OF_ATTEMPT)
    money = {":amount": outcome.amount_minor, ":currency": outcome.currency}
    try:
        orders.move(
            outcome.order_id,
            transition,
            at=outcome.occurred_at,
            changes=changes,
            names=names,
            values={**values, **money, ":revision": outcome.revision},
            conditions=conditions,
        )
    except OrderStatusConflict as conflict:
        return conflict.order
    return None


def _changes(outcome: PaymentOutcome, transition: Transition) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """The attributes that change with the status: the expression of each path, and the names and values in them."""
    changes, values = _facts(outcome)
    names: dict[str, str] = {}
    if transition.status is not OrderStatus.CANCELED:
        # A cancellation is about the order. It does not change the outcome of an attempt.
        changes["outcomes.#attempt"], names["#attempt"] = ":outcome", str(outcome.attempt)
        values[":outcome"] = _attempt_outcome(outcome, transition.status)
    if transition.status is OrderStatus.PAID:
        changes |= {"paid_attempt": ":attempt", "paid_at": ":paid_at"}
        values |= {":attempt": outcome.attempt, ":paid_at": outcome.occurred_at.isoformat()}
    if not transition.of_any_attempt:
        # Usually no change. An order that was restored from a backup takes over the later attempt.
        changes["attempt"], values[":attempt"] = ":attempt", outcome.attempt
        if outcome.payment_method is not None:
            changes["payment_method"], values[":payment_method"] = ":payment_method", outcome.payment_method
    if transition.status is OrderStatus.PAYMENT_DECLINED and outcome.advice_code == DO_NOT_TRY_AGAIN:
        declined = "payment_method" if outcome.payment_method is None else ":payment_method"
        changes[f"refused_payment_methods[{_END_OF_LIST}]"] = declined
    if outcome.decline_code == NO_ATTEMPT_LEFT:
        changes["takes_no_attempt"], values[":true"] = ":true", True
    return changes, names, values


def _facts(outcome: PaymentOutcome) -> tuple[dict[str, str], dict[str, Any]]:
    """What the outcome says beside the status: the expression of each attribute, and the values in them."""
    facts = {"stripe_refunded_minor": outcome.amount_refunded_minor, "dispute_status": outcome.dispute_status}
    given = {name: value for name, value in facts.items() if value is not None}
    changes = {"payment_revision": ":revision", **{name: f":{name}" for name in given}}
    return changes, {f":{name}": value for name, value in given.items()}


def _attempt_outcome(outcome: PaymentOutcome, status: OrderStatus) -> Mapping[str, str]:
    """What the order keeps of the attempt (onecharge.orders.schema.AttemptOutcome)."""
    codes = {"decline_code": outcome.decline_code, "advice_code": outcome.advice_code}
    return {"status": status, **{name: code for name, code in codes.items() if code}}


def _write_facts(orders: OrderStore, outcome: PaymentOutcome) -> bool:
    """Write refunds and dispute of an order whose status stays; False if it has seen this revision of the row."""
    changes, values = _facts(outcome)
    if not values:
        return False
    try:
        orders.client.update_item(
            TableName=orders.table,
            Key=to_item({"order_id": outcome.order_id}),
            UpdateExpression=set_expression(changes),
            ConditionExpression=f"attribute_exists(order_id) AND {_IS_NEWER}",
            ExpressionAttributeValues=to_item({**values, ":revision": outcome.revision}),
        )
    except orders.client.exceptions.ConditionalCheckFailedException:
        return False
    return True


def _move_to_review(
    orders: OrderStore,
    event: PaymentOutcomeEvent,
    order: StoredOrder,
    logger: Logger,
    count: Callable[[str], None],
) -> StoredOrder | None:
    """Move an order whose payment is of other money; returns as `_move`.

    The alarm is raised by each delivery, also if the order has ended. The order stays PAID or CANCELED, then.
    """
    outcome = event.data
    count(Alarm(Cause.MONEY_DIFFERS))
    logger.error(
        "the payment is of other money than the order: was the order lost, and its key used for another one?",
        extra={
            "cause": Cause.MONEY_DIFFERS,
            "amount_minor": outcome.amount_minor,
            "currency": outcome.currency,
            "order_amount_minor": order.amount_minor,
            "order_currency": order.currency,
            "payment_intent_id": outcome.payment_intent_id,
            **event.log_fields,
        },
    )
    try:
        orders.move(outcome.order_id, REVIEW_OTHER_MONEY, at=outcome.occurred_at, changes={})
    except OrderStatusConflict as conflict:
        return conflict.order
    return None
