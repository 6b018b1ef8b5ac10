"""The Orders table: the reads and writes that several functions share.

Every write is one conditional write: of two concurrent ones, one wins and the other reads why it lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import WAITING, Transition
from onecharge.runtime.alarms import RowMissing
from onecharge.runtime.dynamodb import set_expression, shard_of, to_item

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from mypy_boto3_dynamodb import DynamoDBClient


ORDER_RETENTION_SECONDS = 530 * 24 * 3600
"""How long an order or a refund is kept after its status became final. It outlives its payment's row by 30 days: while
a payment can answer for an order id, the order refuses another cart under the same idempotency key."""


def status_update(
    order_id: str, changes: Mapping[str, str], *, waits: bool, at: datetime
) -> tuple[str, Mapping[str, str | int]]:
    """The update expression of every write of a status, with these changes (path: expression); and its value.

    An item that waits has `waiting_shard`: the index `waiting` finds it, and it does not expire. Any other item has
    `expires_at`, counted from `at`. Only this function decides: what waits in no index would never be found again.
    """
    sets, removes = ("waiting_shard", "expires_at") if waits else ("expires_at", "waiting_shard")
    kept = shard_of(order_id) if waits else int(at.timestamp()) + ORDER_RETENTION_SECONDS
    return f"{set_expression({**changes, sets: ':kept'})} REMOVE {removes}", {":kept": kept}


@dataclass(frozen=True)
class OrderStore:
    """The table through botocore's client. Every method makes one request."""

    client: "DynamoDBClient"
    table: str

    def put_if_new(self, item: Mapping[str, Any]) -> StoredOrder | None:
        """Store a new order. Returns None, or the order that has this id already, which stays as it is."""
        try:
            self.client.put_item(
                TableName=self.table,
                Item=item,
                ConditionExpression="attribute_not_exists(order_id)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            return StoredOrder.from_item(_item_of(refused))
        return None

    def move(
        self,
        order_id: str,
        transition: Transition,
        *,
        at: datetime,
        of: str | None = None,
        changes: Mapping[str, str],
        names: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
        conditions: Sequence[str] = (),
    ) -> Mapping[str, Any]:
        """Move the order and make the changes (path: expression) in one write; returns the item as it is now.

        It waits, or expires, counted from `at` (status_update). With `of`, a customer's id, another customer's order is
        as if it were not there.

        Raises:
            NoSuchOrder: there is none.
            OrderStatusConflict: its status is not among the transition's origins, or another condition failed.
        """
        origins = {f":origin_{index}": origin for index, origin in enumerate(sorted(transition.origins))}
        is_waiting = transition.status in WAITING
        since = {"waiting_since": ":since"} if is_waiting else {}
        changes = {"#status": ":status", **since, **changes}
        update, kept = status_update(order_id, changes, waits=is_waiting, at=at)
        owner, is_of_owner = ({}, []) if of is None else ({":customer_id": of}, ["customer_id = :customer_id"])
        bound = {":status": transition.status, **origins, **kept, **owner, **(values or {})}
        bound |= {":since": at.isoformat()} if is_waiting else {}
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": order_id}),
                UpdateExpression=update,
                ConditionExpression=" AND ".join([f"#status IN ({', '.join(origins)})", *is_of_owner, *conditions]),
                ExpressionAttributeNames={"#status": "status", **(names or {})},
                ExpressionAttributeValues=to_item(bound),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            item = _item_of(refused)
            if of is not None and not _is_of(of, item):
                raise NoSuchOrder from None
            raise OrderStatusConflict(item) from None
        return answer["Attributes"]

    # ------------------------------------------------------------ reads, and refusals

    def find(self, order_id: str, *, of: str | None = None) -> StoredOrder | None:
        """The order as it is, read consistently. Raises ValueError if its item breaks the schema.

        With `of`, a customer's id, another customer's order is as if it were not there, readable or not.
        """
        answer = self.client.get_item(TableName=self.table, Key=to_item({"order_id": order_id}), ConsistentRead=True)
        item = answer.get("Item")
        return StoredOrder.from_item(item) if item and (of is None or _is_of(of, item)) else None


class NoSuchOrder(RowMissing):
    """The table has no order of this id."""


class OrderStatusConflict(Exception):
    """The order was not moved: its status, its attempt, or another condition of the write forbids it."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        super().__init__(item["status"]["S"])
        self.status = OrderStatus(item["status"]["S"])
        self._item = item

    @property
    def order(self) -> StoredOrder:
        """The order as it is. Raises ValueError if its item breaks the schema."""
        return StoredOrder.from_item(self._item)


def _is_of(customer_id: str, item: Mapping[str, Any]) -> bool:
    """Compared before the item is read: that another customer's cannot be read is not to be seen, either."""
    return bool(item.get("customer_id") == {"S": customer_id})


def _item_of(refused: "ClientError") -> Mapping[str, Any]:
    """The item that refused the write (ReturnValuesOnConditionCheckFailure). Raises NoSuchOrder."""
    if "Item" not in refused.response:
        raise NoSuchOrder from None
    item: Mapping[str, Any] = refused.response["Item"]  # type: ignore[typeddict-item]  # with ALL_OLD
    return item
