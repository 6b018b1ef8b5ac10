"""The outcome of a payment, written to its order: the status, Stripe's total of refunds, and a dispute.

The order keeps the revision of the payment's row that it has seen: an outcome of an older one changes nothing, unless
it is final at Stripe. An outcome counts only with the order's amount and currency; a cancellation counts whatever they
are. If they differ, the order was lost or put back, and priced again: it stays as it is, with an alarm, until a person
cancels it or refunds its payment.
"""

from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools import Logger

from onecharge.contract.events import EventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStatusConflict, OrderStore
from onecharge.orders.transitions import CONDITION_OF_ATTEMPT, MOVES, Transition
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import Disposition, Done
from onecharge.runtime.dynamodb import set_expression, to_item
from onecharge.runtime.metrics import Alarm

_IS_ITS_MONEY = "amount_minor = :amount AND currency = :currency"
_IS_NEWER = "(attribute_not_exists(payment_revision) OR payment_revision < :revision)"
_CANCELED = MOVES[EventType.PAYMENT_CANCELED]
_OUTCOME = "outcomes.#attempt"


def update_order(
    event: PaymentOutcomeEvent, *, orders: OrderStore, logger: Logger, count: Callable[[str], None]
) -> Disposition:
    """Write one outcome, in one conditional write; one more if only refunds or a dispute are new.

    Raises NoSuchOrder: the message is retried, and ends in the DLQ.
    """
    outcome, transition = event.data, MOVES[event.type]
    unmoved = _move(orders, outcome, transition)
    if unmoved and unmoved.money != outcome.money and outcome.is_returned:
        # The customer has all of the payment back, which had another price: no attempt will pay the order.
        transition = _CANCELED
        unmoved = _move(orders, outcome, transition)
    if unmoved:
        _write_beside_status(unmoved, event, orders=orders, logger=logger, count=count)
    else:
        count(f"Order.{transition.status}")
        logger.info("order updated", extra={"status": transition.status, **event.log_fields})
    return Done()


def _move(orders: OrderStore, outcome: PaymentOutcome, transition: Transition) -> StoredOrder | None:
    """Move the order. Returns None, or the order that ignores the outcome."""
    changes, values = _bound(_changes(outcome, transition))
    conditions = []
    if transition is not _CANCELED:
        conditions.append(_IS_ITS_MONEY)
        values |= {":amount": outcome.amount_minor, ":currency": outcome.currency}
    if not transition.is_terminal:
        conditions += [_IS_NEWER, CONDITION_OF_ATTEMPT]
        values |= {":revision": outcome.revision, ":attempt": outcome.attempt}
    names = {"#attempt": str(outcome.attempt)} if _OUTCOME in changes else {}
    at = outcome.occurred_at
    try:
        orders.move(
            outcome.order_id, transition, at=at, changes=changes, names=names, values=values, conditions=conditions
        )
    except OrderStatusConflict as conflict:
        return conflict.order
    return None


def _changes(outcome: PaymentOutcome, transition: Transition) -> dict[str, Any]:
    """The attributes that change with the status; those that are None stay as they are."""
    if transition is _CANCELED:
        # A cancellation is about the order. It does not change the outcome of an attempt.
        return {"payment_revision": outcome.revision, "cancel_reason": outcome.reason}
    # What the order keeps of the attempt (onecharge.orders.schema.AttemptOutcome).
    of_attempt = {"status": transition.status, **({"decline_code": outcome.reason} if outcome.reason else {})}
    if transition.status is OrderStatus.PAID:
        more = {"paid_attempt": outcome.attempt, "paid_at": outcome.occurred_at.isoformat()}
    else:
        # Usually no change. An order that was restored from a backup takes over the later attempt.
        more = {"attempt": outcome.attempt, "payment_method": outcome.payment_method}
    return {**_facts(outcome), _OUTCOME: of_attempt, **more}


def _facts(outcome: PaymentOutcome) -> dict[str, Any]:
    """Stripe's total of refunds, and the dispute."""
    facts = {"stripe_refunded_minor": outcome.amount_refunded_minor, "dispute_status": outcome.dispute_status}
    return {"payment_revision": outcome.revision, **facts}


def _bound(changes: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """The expression of each path, and the values in them."""
    given = [(path, value) for path, value in changes.items() if value is not None]
    expressions = {path: f":new_{number}" for number, (path, _) in enumerate(given)}
    return expressions, {expressions[path]: value for path, value in given}


# ---------------------------------------------------------------- an order whose status stays


def _write_beside_status(
    order: StoredOrder, event: PaymentOutcomeEvent, *, orders: OrderStore, logger: Logger, count: Callable[[str], None]
) -> None:
    """Write what is new beside the status, and raise an alarm if a person has to see the outcome."""
    outcome, fields = event.data, {"status": order.status, **event.log_fields}
    if order.money == outcome.money and _write_facts(orders, outcome):
        logger.info("refunds and dispute of the order updated", extra=fields)
    else:
        logger.info("order update ignored: stale or duplicate", extra=fields)
    if why := _alarm_of(order, event):
        count(Alarm(Cause.MONEY_DIFFERS))
        money = {"amount_minor": outcome.amount_minor, "currency": outcome.currency}
        money |= {"order_amount_minor": order.amount_minor, "order_currency": order.currency}
        about = {"cause": Cause.MONEY_DIFFERS, "payment_intent_id": outcome.payment_intent_id}
        logger.error(why, extra={**about, **money, **event.log_fields})


def _write_facts(orders: OrderStore, outcome: PaymentOutcome) -> bool:
    """Write refunds and dispute of an order whose status stays; False if it has seen this revision of the row."""
    changes, values = _bound(_facts(outcome))
    if changes.keys() == {"payment_revision"}:
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


# ---------------------------------------------------------------- its alarm


def _alarm_of(order: StoredOrder, event: PaymentOutcomeEvent) -> str | None:
    """Why a person has to see an outcome that did not move the order; each delivery raises the alarm."""
    if event.type is EventType.PAYMENT_CANCELED or event.data.is_returned:
        return None
    if order.money != event.data.money:
        return "the payment has another amount or currency than the order: cancel the order, or refund it at Stripe"
    if order.status is OrderStatus.CANCELED and event.type is EventType.PAYMENT_SUCCEEDED:
        return "a canceled order was charged: refund it at Stripe, and find the cause"
    return None
