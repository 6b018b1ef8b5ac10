"""The DueDocuments table, and the transaction that places the order of one of its documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecharge.orders.store import new_order_put
from onecharge.runtime.dynamodb import from_item, to_item
from place_due_orders.documents import FIELDS, DocumentState

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import UpdateTypeDef

Item = Mapping[str, Any]

_KEY = ("due_date", "document_id")
_DONE = {
    f":{state.lower()}": state for state in (DocumentState.ORDERED, DocumentState.INVALID, DocumentState.WITHDRAWN)
}
# An unknown state, or none, is not done: the document is read, and found to be invalid.
_NOT_DONE = f"attribute_not_exists(#state) OR NOT #state IN ({', '.join(_DONE)})"


@dataclass(frozen=True)
class Page:
    """Documents of one due date that are not done, and the cursor of the next page (None at the end)."""

    items: list[Item]
    next: Item | None


@dataclass(frozen=True)
class Placed:
    """The order is stored, and its document ORDERED."""


@dataclass(frozen=True)
class PlacedBefore:
    """The order was placed before, though its document is not ORDERED; the fingerprint of what it was placed for."""

    fingerprint: str


@dataclass(frozen=True)
class DocumentChanged:
    """The document has changed since it was read: another run has ordered it, or its owner has changed it."""


@dataclass(frozen=True)
class DueDocumentStore:
    """The table through botocore's client. Every method makes exactly one request."""

    client: "DynamoDBClient"
    table: str
    orders_table: str

    def page(self, due_date: str, *, after: Item | None, limit: int) -> Page:
        """The next documents of this due date; `limit` counts those that are done, too."""
        start: dict[str, Any] = {"ExclusiveStartKey": after} if after else {}
        answer = self.client.query(
            TableName=self.table,
            KeyConditionExpression="due_date = :due_date",
            FilterExpression=_NOT_DONE,
            ExpressionAttributeNames={"#state": "state"},
            ExpressionAttributeValues=to_item({":due_date": due_date, **_DONE}),
            Limit=limit,
            **start,
        )
        return Page(list(answer["Items"]), answer.get("LastEvaluatedKey"))

    def place(self, read: Item, order: Item) -> Placed | PlacedBefore | DocumentChanged:
        """Store the order and mark its document, both or neither: the order is new, the document is as it was read."""
        marked = self._update(read, {"state": DocumentState.ORDERED, "order_id": order["order_id"]["S"]})
        new = new_order_put(self.orders_table, order)
        try:
            self.client.transact_write_items(TransactItems=[{"Put": new}, {"Update": marked}])
        except self.client.exceptions.TransactionCanceledException as canceled:
            of_order, of_document = canceled.response["CancellationReasons"]
            codes = {of_order.get("Code"), of_document.get("Code")}
            if of_document.get("Code") == "ConditionalCheckFailed" or "TransactionConflict" in codes:
                return DocumentChanged()
            if of_order.get("Code") == "ConditionalCheckFailed":
                return PlacedBefore(from_item(of_order["Item"])["fingerprint"])
            raise
        return Placed()

    def mark(self, read: Item, marks: Mapping[str, str]) -> bool:
        """Set these attributes of the document if it is as it was read; returns whether it was."""
        try:
            self.client.update_item(**self._update(read, marks))
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _update(self, read: Item, marks: Mapping[str, str]) -> "UpdateTypeDef":
        compared = [name for name in FIELDS if name not in _KEY]
        as_read = [f"#{name} = :{name}" if name in read else f"attribute_not_exists(#{name})" for name in compared]
        return {
            "TableName": self.table,
            "Key": {name: read[name] for name in _KEY},
            "UpdateExpression": "SET " + ", ".join(f"#{name} = :new_{name}" for name in marks),
            # An update would create a document that was deleted.
            "ConditionExpression": " AND ".join(["attribute_exists(document_id)", *as_read]),
            "ExpressionAttributeNames": {f"#{name}": name for name in {*compared, *marks}},
            "ExpressionAttributeValues": {
                **{f":{name}": read[name] for name in compared if name in read},
                **to_item({f":new_{name}": mark for name, mark in marks.items()}),
            },
        }
