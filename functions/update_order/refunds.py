"""The outcome of a refund, written to it; the amount of a refund that failed can be refunded again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from onecharge.contract.refunds import RefundOutcomeEvent, RefundStatus
from onecharge.contract.states import OrderStatus
from onecharge.orders.refunds import REFUND_OUTCOMES, RefundTransition, waits
from onecharge.orders.schema import Keeping
from onecharge.orders.store import OrderStore
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import Disposition, Done
from onecharge.runtime.dynamodb import expression_values, to_item
from onecharge.runtime.metrics import Alarm

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef, UpdateTypeDef


class NoSuchRefund(Exception):
    """The table has no such refund: the message is retried, and ends in the DLQ."""


class RefundConflict(Exception):
    """The refund has another amount than the outcome, or its status keeps changing. The message is retried."""


@dataclass(frozen=True)
class UpdateRefund:
    """Updates refunds. Each outcome is one transaction that is idempotent by itself."""

    orders: OrderStore
    refunds_table: str
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: RefundOutcomeEvent) -> Disposition:
        """Write one outcome. Raises NoSuchRefund, RefundConflict."""
        transition = REFUND_OUTCOMES[event.type]
        try:
            before = self._move(event, transition)
        except NoSuchRefund:
            if not self._is_canceled(event.data.order_id):
                raise
            # The payment service itself refunds a canceled order that was charged: there is no request.
            self.count("CanceledOrderRefunded")
            self._log("refund of a canceled order", event, transition.status)
            return Done()
        is_moved = before in transition.origins
        self.count(f"RefundStatus.{transition.status}" if is_moved else "RefundUpdateIgnored")
        self._log(
            "refund updated" if is_moved else "refund update ignored: stale or duplicate", event, transition.status
        )
        if is_moved and before is RefundStatus.SUCCEEDED:
            self._report_returned(event)
        return Done()

    def _move(self, event: RefundOutcomeEvent, transition: RefundTransition) -> RefundStatus:
        """Move the refund; returns the status that it had, which may be no origin: then it ignored the outcome."""
        expected = RefundStatus.PENDING
        for _ in RefundStatus:
            found = self._write(event, transition, expected)
            if found is None:
                return expected
            if found not in transition.origins:
                return found
            expected = found
        raise RefundConflict(event.data.refund_id)

    def _write(
        self, event: RefundOutcomeEvent, transition: RefundTransition, expected: RefundStatus
    ) -> RefundStatus | None:
        """Write the outcome if the refund has the expected status; returns None, or the status that it has."""
        writes: list[TransactWriteItemTypeDef] = [{"Update": self._outcome(event, transition, expected)}]
        if transition.status is RefundStatus.FAILED:
            # In one transaction: released twice, the amount could be refunded twice.
            writes.append({"Update": self._release(event)})
        client = self.orders.client
        try:
            client.transact_write_items(TransactItems=writes)
        except client.exceptions.TransactionCanceledException as canceled:
            refund = canceled.response["CancellationReasons"][0]
            if refund.get("Code") != "ConditionalCheckFailed":
                raise  # A conflict with another write, or the order is gone: the message is retried.
            if "Item" not in refund:
                raise NoSuchRefund(event.data.refund_id) from None
            item: Mapping[str, Any] = refund["Item"]
            return RefundStatus(item["status"]["S"])
        return None

    def _outcome(
        self, event: RefundOutcomeEvent, transition: RefundTransition, expected: RefundStatus
    ) -> "UpdateTypeDef":
        code = event.data.failure_code
        keeping = Keeping.of(event.data.order_id, waits=waits(transition.status), at=event.data.occurred_at)
        values = {":status": transition.status, ":expected": expected, ":amount": event.data.amount_minor}
        return {
            "TableName": self.refunds_table,
            "Key": to_item({"order_id": event.data.order_id, "refund_id": event.data.refund_id}),
            "UpdateExpression": keeping.update({"#status": ":status", **({"failure_code": ":code"} if code else {})}),
            "ConditionExpression": "#status = :expected AND amount_minor = :amount",
            "ExpressionAttributeNames": {"#status": "status"},
            "ExpressionAttributeValues": to_item({**values, **keeping.values, ":code": code or None}),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _release(self, event: RefundOutcomeEvent) -> "UpdateTypeDef":
        """Release the reservation. If Stripe's total included this refund, another event of the payment lowers it."""
        return {
            "TableName": self.orders.table,
            "Key": to_item({"order_id": event.data.order_id}),
            "UpdateExpression": "SET reserved_minor = reserved_minor - :amount",
            "ConditionExpression": "reserved_minor >= :amount",
            "ExpressionAttributeValues": expression_values(amount=event.data.amount_minor),
        }

    def _is_canceled(self, order_id: str) -> bool:
        order = self.orders.find(order_id)
        return order is not None and order.status is OrderStatus.CANCELED

    def _report_returned(self, event: RefundOutcomeEvent) -> None:
        """The customer expects the money and does not get it: a person has to find another way."""
        self.count("RefundReturned")
        self.count(Alarm(Cause.REFUND_FAILED))
        self.logger.error(
            "a refund failed after it had succeeded: refund its amount again, or in another way",
            extra={"failure_code": event.data.failure_code, "cause": Cause.REFUND_FAILED, **_ids_of(event)},
        )

    def _log(self, message: str, event: RefundOutcomeEvent, status: RefundStatus) -> None:
        self.logger.info(message, extra={"status": status, **_ids_of(event)})


def _ids_of(event: RefundOutcomeEvent) -> dict[str, object]:
    return {
        "order_id": event.data.order_id,
        "refund_id": event.data.refund_id,
        "attempt": event.data.attempt,
        "correlation_id": event.correlationid,
    }
