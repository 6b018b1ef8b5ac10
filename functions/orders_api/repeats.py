"""The same purchase under another idempotency key: refused, unless the customer wants it once more.

Whoever makes a new key for each try orders, and pays, as often as they try. Within the deployment's RepeatWindowSeconds
the second of two such orders is a problem that names the first.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from onecharge.orders.ids import digest_of
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore, new_order_put
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.http_api import Problem, try_again

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import PutTypeDef


@dataclass(frozen=True)
class RepeatGuard:
    """Marks what was bought in the order service's State, for `window_seconds`."""

    orders: OrderStore
    state_table: str
    window_seconds: int

    def put_if_new(self, item: Mapping[str, Any], *, now: datetime, again: bool) -> StoredOrder | None:
        """Store a new order and its mark, both or neither; of two at once, one is stored, unless it says `again`.

        Returns None, or the order that has this id already. Raises Problem: another order has marked this purchase.
        """
        client, order = self.orders.client, StoredOrder.from_item(item)
        put, mark = new_order_put(self.orders.table, item), self._mark(order, int(now.timestamp()), again=again)
        try:
            client.transact_write_items(TransactItems=[{"Put": put}, {"Put": mark}])
        except client.exceptions.TransactionCanceledException as canceled:
            reasons = canceled.response["CancellationReasons"]
            # First of all the retry of an order that is stored: its purchase may be marked by a later one.
            if earlier := self.orders.find(order.order_id):
                return earlier
            marked: Mapping[str, Any] = reasons[1].get("Item", {})
            if marked:
                raise self._repeated(marked["order_id"]["S"]) from None
            if any(reason["Code"] == "TransactionConflict" for reason in reasons):
                raise try_again("Another request orders the same at this moment.") from None
            raise
        return None

    def _mark(self, order: StoredOrder, now: int, *, again: bool) -> "PutTypeDef":
        lines = sorted((each.sku, each.quantity, each.unit_amount) for each in order.items)
        purchase = digest_of(order.customer_id, order.currency, json.dumps(lines))
        expires_at = now + self.window_seconds
        item = {"name": f"purchase {purchase}", "order_id": order.order_id, "expires_at": expires_at}
        put: PutTypeDef = {"TableName": self.state_table, "Item": to_item(item)}
        if again:
            return put
        return put | {
            # DynamoDB deletes what has expired days later. The order itself may have been lost since it was marked.
            "ConditionExpression": "attribute_not_exists(order_id) OR expires_at <= :now OR order_id = :own",
            "ExpressionAttributeValues": to_item({":now": now, ":own": order.order_id}),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _repeated(self, order_id: str) -> Problem:
        earlier = self.orders.find(order_id)
        detail = (
            "You ordered exactly this a moment ago, with another Idempotency-Key: use one key for each purchase, the "
            'same for each retry. Nothing was stored. To order it once more, send "again": true.'
        )
        members = {"order_id": order_id, **({"order_status": earlier.status} if earlier else {})}
        return Problem(HTTPStatus.CONFLICT, "probable-duplicate", detail, members=members)
