"""The DueDocuments table: invoices, or the periods of subscriptions, each to be paid on a date.

DUE ─► ORDERED      one order was placed for it (place_due_orders); the payment is the order's
DUE ─► INVALID      it cannot be an order (place_due_orders); `reason` says why. Its owner corrects it: DUE
DUE ─► WITHDRAWN    its owner does not want it ordered any more, and writes that on the condition that it is DUE
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from onecharge.contract.events import CustomerId, PaymentMethodId, reason_of
from onecharge.contract.money import AmountMinor, Currency, require_chargeable, require_minimum
from onecharge.orders.card_numbers import holds_card_number
from onecharge.orders.ids import fingerprint_of, order_id_of
from onecharge.orders.store import new_order_put
from onecharge.runtime.dynamodb import from_item, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import UpdateTypeDef


class DocumentState(StrEnum):
    """The state of a document in the DueDocuments table."""

    DUE = "DUE"
    ORDERED = "ORDERED"
    INVALID = "INVALID"
    WITHDRAWN = "WITHDRAWN"


class InvalidDocument(Exception):
    """The document cannot be an order; `reason` names the field and the rule, and does not repeat the value."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _no_card_number(text: str) -> str:
    if holds_card_number(text):
        raise PydanticCustomError("card_number", "Input should not hold a card number")
    return text


_NoCardNumber = AfterValidator(_no_card_number)


class DueDocument(BaseModel):
    """A document as this function reads it. Its item may have more attributes."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, hide_input_in_errors=True)

    due_date: str
    """The day in UTC on which it is due, as in the key: 2026-11-21."""
    document_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$"), _NoCardNumber]
    customer_id: Annotated[CustomerId, _NoCardNumber]
    amount_minor: AmountMinor
    currency: Currency
    payment_method: Annotated[PaymentMethodId, _NoCardNumber]
    state: Literal["DUE"]

    @model_validator(mode="after")
    def _can_be_charged(self) -> Self:
        require_chargeable(self.amount_minor, self.currency)
        require_minimum(self.amount_minor, self.currency)
        return self

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Self:
        """Read an item of the table. Raises InvalidDocument."""
        try:
            return cls.model_validate(from_item({name: item[name] for name in FIELDS if name in item}))
        except ValidationError as invalid:
            raise InvalidDocument(reason_of(invalid)) from None
        except ValueError:
            # DynamoDB's numbers may be fractions; no attribute here is one.
            raise InvalidDocument("message: not_a_whole_number") from None

    @property
    def order_id(self) -> str:
        """The id of the one order of this document and due date. Three parts: a customer's order has two."""
        return order_id_of("due", self.document_id, self.due_date)

    @property
    def fingerprint(self) -> str:
        """The same for two documents of the same amount, currency, customer and payment method."""
        return fingerprint_of(self)


FIELDS = tuple(DueDocument.model_fields)
"""The attributes of an item that this function reads."""


# ---------------------------------------------------------------- the table

Item = Mapping[str, Any]
"""An item in DynamoDB's JSON."""

_KEY = ("due_date", "document_id")
_STATES = {f":{state.lower()}": state for state in DocumentState}
_UNKNOWN = f"attribute_not_exists(#state) OR NOT #state IN ({', '.join(_STATES)})"


@dataclass(frozen=True)
class Page:
    """Documents of one due date, and the cursor of the next page (None at the end)."""

    items: list[Item]
    next: Item | None


@dataclass(frozen=True)
class Placed:
    """The order is stored, and its document ORDERED."""


@dataclass(frozen=True)
class PlacedBefore:
    """The order exists, though its document is not ORDERED. `fingerprint` is that of the document it was placed for."""

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

    def due(self, due_date: str, *, after: Item | None, limit: int) -> Page:
        """Returns the next documents of this due date that are DUE, by the index: no others are read."""
        condition, values = "due_date = :due_date AND #state = :due", {":due": DocumentState.DUE}
        return self._page(due_date, after, limit, values, KeyConditionExpression=condition, IndexName="due")

    def of_no_state(self, due_date: str, *, after: Item | None, limit: int) -> Page:
        """Returns the next ones without a state, or with an unknown one; `limit` counts all others, too."""
        condition = "due_date = :due_date"
        return self._page(due_date, after, limit, _STATES, KeyConditionExpression=condition, FilterExpression=_UNKNOWN)

    def _page(
        self, due_date: str, after: Item | None, limit: int, values: Mapping[str, str], **conditions: Any
    ) -> Page:
        start: dict[str, Any] = {"ExclusiveStartKey": after} if after else {}
        answer = self.client.query(
            TableName=self.table,
            ExpressionAttributeNames={"#state": "state"},
            ExpressionAttributeValues=to_item({":due_date": due_date, **values}),
            Limit=limit,
            **conditions,
            **start,
        )
        return Page(list(answer["Items"]), answer.get("LastEvaluatedKey"))

    def place(self, read: Item, order: Item) -> Placed | PlacedBefore | DocumentChanged:
        """Store the order and mark its document ORDERED, both or neither.

        Both are written only if the order is new and the document has not changed since it was read.
        """
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

    def order_of(self, document: DueDocument) -> PlacedBefore | None:
        """The order that was placed for this document, whatever state the document has by now; None if none was."""
        answer = self.client.get_item(
            TableName=self.orders_table, Key=to_item({"order_id": document.order_id}), ConsistentRead=True
        )
        return PlacedBefore(from_item(answer["Item"])["fingerprint"]) if "Item" in answer else None

    def mark(self, read: Item, marks: Mapping[str, str]) -> bool:
        """Set these attributes if the document has not changed since it was read; returns whether it has not."""
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
