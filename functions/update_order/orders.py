"""A payment's outcome, written to its order: the status, what Stripe shows as refunded, and a dispute."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from onecharge.contract.events import EventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.items import expires_at
from onecharge.runtime.consumer import Disposition, Done
from onecharge.runtime.dynamodb import expression_values, setting, to_item
from update_order.transitions import CLOSED_DISPUTES, TRANSITIONS, Transition

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_DO_NOT_TRY_AGAIN = "do_not_try_again"
_END_OF_LIST = 1_000
"""DynamoDB appends an element that is set beyond the end of a list; there are fewer attempts than this."""


class NoSuchOrder(Exception):
    """A payment for an order that the table does not have: it is tried again, and ends in the DLQ."""


@dataclass(frozen=True)
class UpdateOrder:
    """Updates orders, each fact with one conditional write that is idempotent by itself."""

    client: "DynamoDBClient"
    table: str
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: PaymentOutcomeEvent) -> Disposition:
        transition = TRANSITIONS[event.type]
        conflicting = self._move(event.data, transition)
        self._keep_refunded(event.data)
        self._keep_dispute(event.data)
        self.count("OrderUpdateIgnored" if conflicting else f"Order.{transition.status}")
        self._log(
            "order update ignored: stale or duplicate" if conflicting else "order updated", event, transition.status
        )
        if conflicting is OrderStatus.CANCELED and event.type is EventType.PAYMENT_SUCCEEDED:
            self._report_canceled_order_charged(event)
        return Done()

    def _move(self, outcome: PaymentOutcome, transition: Transition) -> OrderStatus | None:
        """Move the order; returns None, or the status with which it ignored the outcome."""
        origins = {f":origin_{index}": origin for index, origin in enumerate(sorted(transition.origins))}
        is_movable = f"#status IN ({', '.join(origins)})"
        # Another attempt's outcome says nothing about the present one, unless it is the whole payment's.
        is_present = "attempt = :attempt AND " if not transition.of_any_attempt else ""
        changes, names, values = _changes(outcome, transition)
        try:
            self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": outcome.order_id}),
                UpdateExpression=setting(changes),
                ConditionExpression=is_present + is_movable,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=to_item({**values, **origins}),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            if "Item" not in refused.response:
                raise NoSuchOrder(outcome.order_id) from None
            return OrderStatus(refused.response["Item"]["status"]["S"])  # type: ignore[typeddict-item]  # with ALL_OLD
        return None

    def _keep_refunded(self, outcome: PaymentOutcome) -> None:
        """Keep what Stripe shows as refunded, by the row's newest revision: a stale or duplicate event says nothing."""
        if outcome.amount_refunded_minor is None:
            return
        self._keep(
            outcome.order_id,
            "SET stripe_refunded_minor = :refunded, stripe_refunded_revision = :revision",
            "attribute_not_exists(stripe_refunded_revision) OR stripe_refunded_revision < :revision",
            refunded=outcome.amount_refunded_minor,
            revision=outcome.revision,
        )

    def _keep_dispute(self, outcome: PaymentOutcome) -> None:
        """Keep the dispute's status; one that is closed is not reopened by a stale event."""
        if outcome.dispute_status is None:
            return
        closed = {status: status for status in CLOSED_DISPUTES}
        was_open = f"NOT dispute_status IN ({', '.join(f':{status}' for status in closed)})"
        is_closed = outcome.dispute_status in closed
        self._keep(
            outcome.order_id,
            "SET dispute_status = :dispute",
            "attribute_exists(order_id)" if is_closed else f"attribute_not_exists(dispute_status) OR {was_open}",
            dispute=outcome.dispute_status,
            **({} if is_closed else closed),
        )

    def _keep(self, order_id: str, update: str, condition: str, **values: Any) -> None:
        try:
            self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": order_id}),
                UpdateExpression=update,
                ConditionExpression=f"attribute_exists(order_id) AND ({condition})",
                ExpressionAttributeValues=expression_values(**values),
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return

    def _report_canceled_order_charged(self, event: PaymentOutcomeEvent) -> None:
        """By design it cannot happen; the payment service refunds it by itself, and somebody has to find out why."""
        self.count("CanceledOrderCharged")
        self.count("Alarm")
        self.logger.error(
            "a canceled order was charged: the payment service refunds it",
            extra={
                "order_id": event.data.order_id,
                "attempt": event.data.attempt,
                "payment_intent_id": event.data.payment_intent_id,
                "correlation_id": event.correlationid,
            },
        )

    def _log(self, message: str, event: PaymentOutcomeEvent, status: OrderStatus) -> None:
        self.logger.info(
            message,
            extra={
                "status": status,
                "order_id": event.data.order_id,
                "attempt": event.data.attempt,
                "correlation_id": event.correlationid,
            },
        )


def _changes(outcome: PaymentOutcome, transition: Transition) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """What the outcome changes of the order: for each path its value, and the names and values that they stand for."""
    changes, names = {"#status": ":status"}, {"#status": "status"}
    values: dict[str, Any] = {":status": transition.status}
    if transition.status is not OrderStatus.CANCELED:
        # A cancellation is the order's: it takes nothing away from what is known of an attempt.
        changes["outcomes.#attempt"], names["#attempt"] = ":outcome", str(outcome.attempt)
        values |= {":outcome": _stored(outcome, transition.status), ":attempt": outcome.attempt}
    if transition.is_final:
        changes["expires_at"], values[":expires_at"] = ":expires_at", expires_at(outcome.occurred_at)
    if transition.status is OrderStatus.PAID:
        changes["paid_attempt"] = ":attempt"
    if transition.status is OrderStatus.PAYMENT_DECLINED and outcome.advice_code == _DO_NOT_TRY_AGAIN:
        # The payment method of the present attempt, which is the one that was declined.
        changes[f"refused_payment_methods[{_END_OF_LIST}]"] = "payment_method"
    return changes, names, values


def _stored(outcome: PaymentOutcome, status: OrderStatus) -> dict[str, str]:
    """What the order keeps of the attempt."""
    codes = {"decline_code": outcome.decline_code, "advice_code": outcome.advice_code}
    return {"status": status, **{name: code for name, code in codes.items() if code}}
