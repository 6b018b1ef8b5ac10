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
from onecharge.orders.store import OrderStore, new_order_put
from onecharge.runtime.dynamodb import from_item, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import UpdateTypeDef

Item = Mapping[str, Any]
"""An item in DynamoDB's JSON."""


class DocumentState(StrEnum):
    """The state of a document in the DueDocuments table."""

    DUE = "DUE"
    ORDERED = "ORDERED"
    INVALID = "INVALID"
    WITHDRAWN = "WITHDRAWN"


class InvalidDocument(Exception):
    """The document cannot be an order: the text names the field and the rule, and does not repeat the value."""


class DocumentChanged(Exception):
    """The document has changed since it was read: another run has ordered it, or its owner has changed it."""


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
    def from_item(cls, item: Item) -> Self:
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

_KEY = ("due_date", "document_id")
_STATES = {f":{state.lower()}": state for state in DocumentState}
_UNKNOWN = f"attribute_not_exists(#state) OR NOT #state IN ({', '.join(_STATES)})"


@dataclass(frozen=True)
class DueDocumentStore:
    """The table through botocore's client. Every method makes exactly one request."""

    client: "DynamoDBClient"
    table: str
    orders_table: str
    page_size: int = 1000
    """Documents that one request reads. Each is written only if it has not changed since."""

    def due(self, due_date: str, *, after: Item | None) -> tuple[list[Item], Item | None]:
        """Returns the next documents of this due date that are DUE, by the index, and the cursor (None at the end)."""
        is_due = "due_date = :due_date AND #state = :due"
        return self._page(due_date, after, {":due": DocumentState.DUE}, KeyConditionExpression=is_due, IndexName="due")

    def of_no_state(self, due_date: str, *, after: Item | None) -> tuple[list[Item], Item | None]:
        """Returns the next ones without a state, or with an unknown one; `page_size` counts all others, too."""
        is_of_day = "due_date = :due_date"
        return self._page(due_date, after, _STATES, KeyConditionExpression=is_of_day, FilterExpression=_UNKNOWN)

    def _page(
        self, due_date: str, after: Item | None, values: Mapping[str, str], **conditions: Any
    ) -> tuple[list[Item], Item | None]:
        start: dict[str, Any] = {"ExclusiveStartKey": after} if after else {}
        answer = self.client.query(
            TableName=self.table,
            ExpressionAttributeNames={"#state": "state"},
            ExpressionAttributeValues=to_item({":due_date": due_date, **values}),
            Limit=self.page_size,
            **conditions,
            **start,
        )
        return list(answer["Items"]), answer.get("LastEvaluatedKey")

    def place(self, read: Item, order: Item) -> str | None:
        """Store the order and mark its document ORDERED, both or neither: only if the order is new.

        Returns None, or the fingerprint of the document that the order was placed for before. Raises DocumentChanged.
        """
        marked = self._update(read, {"state": DocumentState.ORDERED, "order_id": order["order_id"]["S"]})
        new = new_order_put(self.orders_table, order)
        try:
            self.client.transact_write_items(TransactItems=[{"Put": new}, {"Update": marked}])
        except self.client.exceptions.TransactionCanceledException as canceled:
            of_order, of_document = canceled.response["CancellationReasons"]
            codes = {of_order.get("Code"), of_document.get("Code")}
            if of_document.get("Code") == "ConditionalCheckFailed" or "TransactionConflict" in codes:
                raise DocumentChanged from None
            if of_order.get("Code") == "ConditionalCheckFailed":
                return str(from_item(of_order["Item"])["fingerprint"])
            raise
        return None

    def fingerprint_placed(self, document: DueDocument) -> str | None:
        """Returns that of the document which its order was placed for; None if there is no order."""
        order = OrderStore(self.client, self.orders_table).find(document.order_id)
        return order.fingerprint if order else None

    def mark(self, read: Item, marks: Mapping[str, str]) -> None:
        """Set these attributes. Raises DocumentChanged."""
        try:
            self.client.update_item(**self._update(read, marks))
        except self.client.exceptions.ConditionalCheckFailedException:
            raise DocumentChanged from None

    def _update(self, read: Item, marks: Mapping[str, str]) -> "UpdateTypeDef":
        compared = [name for name in FIELDS if name not in _KEY]
        as_read = [f"#{name} = :{name}" if name in read else f"attribute_not_exists(#{name})" for name in compared]
        values = {f":{name}": read[name] for name in compared if name in read}
        return {
            "TableName": self.table,
            "Key": {name: read[name] for name in _KEY},
            "UpdateExpression": "SET " + ", ".join(f"#{name} = :new_{name}" for name in marks),
            # An update would create a document that was deleted.
            "ConditionExpression": " AND ".join(["attribute_exists(document_id)", *as_read]),
            "ExpressionAttributeNames": {f"#{name}": name for name in {*compared, *marks}},
            "ExpressionAttributeValues": values | to_item({f":new_{name}": mark for name, mark in marks.items()}),
        }
