"""The two tables whose items wait for the payment service, and the event that each of them is published as again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecharge.contract.events import Event
from onecharge.contract.refunds import RefundState
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import WAITING
from onecharge.orders.waiting import WaitingIndex
from onecharge.runtime.dynamodb import read_items

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEYS = ("order_id", "refund_id")

Item = Mapping[str, Any]
"""An item in DynamoDB's JSON."""


@dataclass(frozen=True)
class Source:
    """One table whose items wait."""

    index: WaitingIndex
    event_of: Callable[[Item], Event | None]
    """Returns None if the item does not wait any more. Raises ValueError if it breaks the schema."""

    def read(self, entries: Sequence[Mapping[str, Any]]) -> list[Item]:
        """Returns the items of these entries as they are now, omitting any that are gone. Raises ReadsThrottled."""
        keys = [{name: entry[name] for name in _KEYS if name in entry} for entry in entries]
        return read_items(self.index.client, self.index.table, keys)


def waiting_orders(client: "DynamoDBClient", table: str) -> Source:
    """The orders that the payment service ends by itself (onecharge.orders.transitions)."""
    return Source(WaitingIndex(client, table, "waiting_since"), _event_of_order)


def _event_of_order(item: Item) -> Event | None:
    order = StoredOrder.from_item(item)
    # REQUIRES_ACTION asks again about the current attempt.
    return order.event() or order.placed_event() if order.status in WAITING else None


def waiting_refunds(client: "DynamoDBClient", table: str) -> Source:
    """The refunds that are PENDING."""
    return Source(WaitingIndex(client, table, "requested_at"), _event_of_refund)


def _event_of_refund(item: Item) -> Event | None:
    refund = StoredRefund.from_item(item)
    return refund.requested_event() if refund.status is RefundState.PENDING else None
