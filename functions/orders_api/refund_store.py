"""The OrderRefunds table as the API writes and reads it; update_order writes the outcome of a refund.

A refund is stored in one transaction with the reservation of its amount on the order, so that no more is requested than
was paid.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from onecharge.contract.money import require_chargeable
from onecharge.contract.refunds import RefundStatus
from onecharge.contract.states import OrderStatus
from onecharge.orders.ids import digest_of
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import KeyReused
from onecharge.runtime.dynamodb import expression_values, shard_of, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import PutTypeDef, UpdateTypeDef


class NotPaid(Exception):
    """The order is not PAID."""

    def __init__(self, status: OrderStatus) -> None:
        super().__init__(status)
        self.status = status


class ExceedsRefundable(Exception):
    """The amount is more than is left of what was paid."""


class OrderChanged(Exception):
    """The order has changed since it was read: read it again."""


def refund_id_for(order_id: str, idempotency_key: str) -> str:
    """The id of the refund that this key requests: always the same."""
    return f"rfd_{digest_of(order_id, idempotency_key)}"


@dataclass(frozen=True)
class OrderRefundStore:
    """The OrderRefunds table, and the reservations on the Orders table, through botocore's client."""

    client: "DynamoDBClient"
    table: str
    orders_table: str

    def request(
        self,
        order: StoredOrder,
        amount_minor: int | None,
        idempotency_key: str,
        *,
        correlation_id: str,
        now: datetime,
    ) -> tuple[StoredRefund, bool]:
        """Store the refund and reserve its amount, or find that an earlier try did; returns also whether it is new.

        An amount of None is all that is left.

        Raises:
            KeyReused: this key was used for a refund of another amount.
            NotPaid: the order is not paid.
            ExceedsRefundable: less than that is left.
            OrderChanged: the order was changed since it was read.
            PydanticCustomError: Stripe cannot refund this amount of this currency.
        """
        refund_id = refund_id_for(order.order_id, idempotency_key)
        asked_for = str(amount_minor or "the rest")
        earlier = self.find(order.order_id, refund_id)
        if earlier is not None:
            return _replayed(earlier, asked_for), False
        refund = StoredRefund(
            order_id=order.order_id,
            refund_id=refund_id,
            status=RefundStatus.PENDING,
            attempt=order.paid_attempt or order.attempt,
            amount_minor=refundable_minor(order, amount_minor),
            currency=order.currency,
            asked_for=asked_for,
            requested_at=now.isoformat(),
            correlation_id=correlation_id,
        )
        stored = self._store_and_reserve(refund, order)
        return (refund, True) if stored is None else (_replayed(stored, asked_for), False)

    def _store_and_reserve(self, refund: StoredRefund, order: StoredOrder) -> StoredRefund | None:
        """Both or neither; returns None, or the refund that a first try beside this one stored. Raises OrderChanged."""
        try:
            self.client.transact_write_items(
                TransactItems=[{"Put": self._put(refund)}, {"Update": self._reservation(refund, order)}]
            )
        except self.client.exceptions.TransactionCanceledException as canceled:
            stored, reserved = canceled.response["CancellationReasons"]
            if "Item" in stored:
                return StoredRefund.from_item(stored["Item"])
            if {stored["Code"], reserved["Code"]} & {"ConditionalCheckFailed", "TransactionConflict"}:
                raise OrderChanged from None
            raise
        return None

    def _put(self, refund: StoredRefund) -> "PutTypeDef":
        return {
            "TableName": self.table,
            "Item": to_item({**refund.model_dump(), "waiting_shard": shard_of(refund.order_id)}),
            "ConditionExpression": "attribute_not_exists(refund_id)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _reservation(self, refund: StoredRefund, order: StoredOrder) -> "UpdateTypeDef":
        """The only place that decides that no more is refunded than was paid."""
        is_paid = "#status = :paid"
        is_left = "(attribute_not_exists(reserved_minor) OR reserved_minor <= :most)"
        # Stripe's total includes refunds made in the Dashboard. What is left was computed from this total, or more is.
        stripe_shows_no_more = "(attribute_not_exists(stripe_refunded_minor) OR stripe_refunded_minor <= :stripe)"
        return {
            "TableName": self.orders_table,
            "Key": to_item({"order_id": order.order_id}),
            "UpdateExpression": "SET reserved_minor = if_not_exists(reserved_minor, :zero) + :amount",
            "ConditionExpression": " AND ".join([is_paid, is_left, stripe_shows_no_more]),
            "ExpressionAttributeNames": {"#status": "status"},
            "ExpressionAttributeValues": expression_values(
                zero=0,
                amount=refund.amount_minor,
                most=order.amount_minor - refund.amount_minor,
                paid=OrderStatus.PAID,
                stripe=order.stripe_refunded_minor,
            ),
        }

    def find(self, order_id: str, refund_id: str) -> StoredRefund | None:
        """The refund as it is, read consistently."""
        key = to_item({"order_id": order_id, "refund_id": refund_id})
        answer = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
        return StoredRefund.from_item(answer["Item"]) if "Item" in answer else None

    def of_order(self, order_id: str) -> list[StoredRefund]:
        """The order's refunds, the oldest first; at most one page of DynamoDB (1 MB), which is thousands."""
        answer = self.client.query(
            TableName=self.table,
            KeyConditionExpression="order_id = :order_id",
            ExpressionAttributeValues=expression_values(order_id=order_id),
            ConsistentRead=True,
        )
        refunds = map(StoredRefund.from_item, answer["Items"])
        return sorted(refunds, key=lambda refund: (refund.requested_at, refund.refund_id))


def refundable_minor(order: StoredOrder, amount_minor: int | None) -> int:
    """The amount, or all that is left if there is none. Raises as OrderRefundStore.request."""
    if order.status is not OrderStatus.PAID:
        raise NotPaid(order.status)
    left_minor = order.amount_minor - order.refunded_minor
    wanted_minor = left_minor if amount_minor is None else amount_minor
    if not 0 < wanted_minor <= left_minor:
        raise ExceedsRefundable
    require_chargeable(wanted_minor, order.currency)
    return wanted_minor


def _replayed(earlier: StoredRefund, asked_for: str) -> StoredRefund:
    if earlier.asked_for != asked_for:
        raise KeyReused
    return earlier
