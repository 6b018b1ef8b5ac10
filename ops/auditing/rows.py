"""Our rows, as the audit reads them: by order, a hundred a request; and those that were finalized within a time.

The Payments table has no index by time: what was finalized within a time is found by reading the whole table, half a
read unit for each 4 KB (eventually consistent). A million rows of 700 bytes are 85,000 read units: about one cent. An
index would cost a write unit with each of the rows' writes, for a question that is asked once a day.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import batched
from typing import TYPE_CHECKING, Any

from onecharge.contract.states import PaymentState
from onecharge.runtime.dynamodb import expression_values, from_item, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEYS_MAX = 100
"""Keys of one BatchGetItem request, at the most (Amazon DynamoDB API reference)."""

Item = Mapping[str, Any]
"""A row's attributes in plain Python values."""


@dataclass(frozen=True)
class PaymentRow:
    """A row of the Payments table, as far as money goes."""

    order_id: str
    state: PaymentState
    amount_minor: int
    currency: str
    payment_intent_id: str | None = None
    amount_refunded_minor: int = 0
    dispute_status: str | None = None

    @classmethod
    def of(cls, item: Item) -> "PaymentRow":
        return cls(
            order_id=item["order_id"],
            state=PaymentState(item["state"]),
            amount_minor=item["amount_minor"],
            currency=item["currency"],
            payment_intent_id=item.get("payment_intent_id"),
            amount_refunded_minor=item.get("amount_refunded_minor", 0),
            dispute_status=item.get("dispute_status"),
        )


@dataclass(frozen=True)
class PaymentRows:
    """The Payments table."""

    client: "DynamoDBClient"
    table: str

    def of_orders(self, order_ids: Iterable[str]) -> Mapping[str, PaymentRow]:
        """The rows of these orders, by order; those that are lost are missing."""
        keys = [{"order_id": order_id} for order_id in sorted(set(order_ids))]
        return {item["order_id"]: PaymentRow.of(item) for item in read_all(self.client, self.table, keys)}

    def succeeded(self, since: int, until: int) -> Iterator[PaymentRow]:
        """The rows that were finalized as SUCCEEDED within the time. Reads the whole table."""
        for item in finalized_as(self.client, self.table, PaymentState.SUCCEEDED, since, until):
            yield PaymentRow.of(item)


def read_all(client: "DynamoDBClient", table: str, keys: Iterable[Mapping[str, Any]]) -> Iterator[Item]:
    """The items of these keys, strongly consistent; in any order, without those that do not exist."""
    for batch in batched(keys, _KEYS_MAX, strict=False):
        wanted: Any = {table: {"Keys": [to_item(key) for key in batch], "ConsistentRead": True}}
        while wanted:  # DynamoDB answers with at most 16 MB, and with what it has left out.
            answer = client.batch_get_item(RequestItems=wanted)
            yield from (from_item(item) for item in answer["Responses"].get(table, []))
            wanted = answer.get("UnprocessedKeys")


def finalized_as(client: "DynamoDBClient", table: str, state: str, since: int, until: int) -> Iterator[Item]:
    """The items of this state that were finalized within the time; a page of at most 1 MB at a time."""
    pages = client.get_paginator("scan").paginate(
        TableName=table,
        FilterExpression="#state = :state AND finalized_at >= :since AND finalized_at < :until",
        ExpressionAttributeNames={"#state": "state"},
        ExpressionAttributeValues=expression_values(state=state, since=since, until=until),
    )
    for page in pages:
        yield from (from_item(item) for item in page["Items"])
