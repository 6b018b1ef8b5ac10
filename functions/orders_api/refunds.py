"""The OrderRefunds table as the API writes and reads it; the outcome of a refund is written by update_order.

A refund is stored in one transaction with the reservation of its amount on the order, so that never more is asked for
than was paid. As with an order, the stored item is the outbox.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from onecharge.contract.money import AmountMinor, require_chargeable
from onecharge.contract.states import OrderStatus, RefundStatus
from onecharge.orders.items import digest_of
from onecharge.runtime.dynamodb import expression_values, from_item, to_item
from orders_api.orders import KeyReused, OrderStatusConflict, StoredOrder

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class RefundRequest(BaseModel):
    """The body of POST /orders/{order_id}/refunds. The amount is an integer, in the order's minor unit."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    amount: AmountMinor | None = None
    """Left out, it is all that is left."""


@dataclass(frozen=True)
class StoredRefund:
    """A refund as it is stored."""

    order_id: str
    refund_id: str
    status: RefundStatus
    amount_minor: int
    currency: str
    requested_at: str
    asked_for: str
    """The amount as the client gave it: a retry asks for the same, and not for what is left by then."""
    correlation_id: str

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> "StoredRefund":
        values = from_item(item)
        return cls(
            order_id=values["order_id"],
            refund_id=values["refund_id"],
            status=RefundStatus(values["status"]),
            amount_minor=values["amount_minor"],
            currency=values["currency"],
            requested_at=values["requested_at"],
            asked_for=values["asked_for"],
            correlation_id=values["correlation_id"],
        )


class ExceedsRefundable(Exception):
    """More than is left of what was paid."""


class OrderChanged(Exception):
    """The order has changed since it was read: read it again."""


def refund_id_for(order_id: str, idempotency_key: str) -> str:
    """The id of the refund that this key requests: always the same."""
    return f"rfd_{digest_of(order_id, idempotency_key)}"


@dataclass(frozen=True)
class Refunds:
    """The OrderRefunds table, and the reservations on the Orders table, through boto3's client."""

    client: "DynamoDBClient"
    table: str
    orders_table: str

    def request(
        self, order: StoredOrder, request: RefundRequest, idempotency_key: str, *, correlation_id: str, now: datetime
    ) -> tuple[StoredRefund, bool]:
        """Store the refund and reserve its amount, or find it stored by an earlier try; returns also whether it is new.

        Raises:
            KeyReused: this key was used for a refund of another amount.
            OrderStatusConflict: the order is not paid.
            ExceedsRefundable: less than that is left.
            OrderChanged: somebody else has changed the order since it was read.
        """
        refund_id = refund_id_for(order.order_id, idempotency_key)
        asked_for = str(request.amount or "the rest")
        earlier = self.find(order.order_id, refund_id)
        if earlier is not None:
            return _the_same(earlier, asked_for), False
        amount_minor = _refundable(order, request.amount)
        item = to_item(
            {
                "order_id": order.order_id,
                "refund_id": refund_id,
                "status": RefundStatus.PENDING,
                "attempt": order.paid_attempt or order.attempt,
                "amount_minor": amount_minor,
                "currency": order.currency,
                "asked_for": asked_for,
                "requested_at": now.isoformat(),
                "correlation_id": correlation_id,
            }
        )
        try:
            self._store_and_reserve(item, order, amount_minor)
        except self.client.exceptions.TransactionCanceledException as canceled:
            stored, reserved = canceled.response["CancellationReasons"]
            if "Item" in stored:
                return _the_same(StoredRefund.of(stored["Item"]), asked_for), False
            if {stored["Code"], reserved["Code"]} & {"ConditionalCheckFailed", "TransactionConflict"}:
                raise OrderChanged from None
            raise
        return StoredRefund.of(item), True

    def _store_and_reserve(self, item: dict[str, Any], order: StoredOrder, amount_minor: int) -> None:
        is_paid = "#status = :paid"
        is_left = "(attribute_not_exists(refunded_minor) OR refunded_minor <= :most)"
        # Stripe's figure counts refunds made by hand; what is left was computed from this one, or is more by now.
        stripe_shows_no_more = "(attribute_not_exists(stripe_refunded_minor) OR stripe_refunded_minor <= :stripe)"
        self.client.transact_write_items(
            TransactItems=[
                {
                    "Put": {
                        "TableName": self.table,
                        "Item": item,
                        "ConditionExpression": "attribute_not_exists(refund_id)",
                        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                    }
                },
                {
                    "Update": {
                        "TableName": self.orders_table,
                        "Key": to_item({"order_id": order.order_id}),
                        "UpdateExpression": "SET refunded_minor = if_not_exists(refunded_minor, :zero) + :amount",
                        # Here it is decided, once, that never more is refunded than was paid.
                        "ConditionExpression": " AND ".join([is_paid, is_left, stripe_shows_no_more]),
                        "ExpressionAttributeNames": {"#status": "status"},
                        "ExpressionAttributeValues": expression_values(
                            zero=0,
                            amount=amount_minor,
                            most=order.amount_minor - amount_minor,
                            paid=OrderStatus.PAID,
                            stripe=order.stripe_refunded_minor,
                        ),
                    }
                },
            ]
        )

    def find(self, order_id: str, refund_id: str) -> StoredRefund | None:
        """The refund as it is now."""
        key = to_item({"order_id": order_id, "refund_id": refund_id})
        answer = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
        return StoredRefund.of(answer["Item"]) if "Item" in answer else None

    def of_order(self, order_id: str) -> list[StoredRefund]:
        """The order's refunds, the oldest first; as many as one answer of DynamoDB holds, which are thousands."""
        answer = self.client.query(
            TableName=self.table,
            KeyConditionExpression="order_id = :order_id",
            ExpressionAttributeValues=expression_values(order_id=order_id),
            ConsistentRead=True,
        )
        return sorted(map(StoredRefund.of, answer["Items"]), key=lambda refund: (refund.requested_at, refund.refund_id))


def _the_same(earlier: StoredRefund, asked_for: str) -> StoredRefund:
    if earlier.asked_for != asked_for:
        raise KeyReused
    return earlier


def _refundable(order: StoredOrder, amount_minor: int | None) -> int:
    if order.status is not OrderStatus.PAID:
        raise OrderStatusConflict(order)
    left = order.amount_minor - order.refunded_minor
    wanted = left if amount_minor is None else amount_minor
    if not 0 < wanted <= left:
        raise ExceedsRefundable
    require_chargeable(wanted, order.currency)
    return wanted
