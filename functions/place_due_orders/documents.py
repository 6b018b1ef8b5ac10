"""The item of the DueDocuments table: an invoice, or one period of a subscription, to be paid on a date.

DUE ─► ORDERED      one order was placed for it (place_due_orders); the payment is the order's
DUE ─► INVALID      it cannot be an order (place_due_orders); `reason` says why. Its owner corrects it: DUE
DUE ─► WITHDRAWN    its owner does not want it ordered any more, and writes that on the condition that it is DUE
"""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from onecharge.contract.events import CustomerId, PaymentMethodId, reason_of
from onecharge.contract.money import AmountMinor, Currency, require_chargeable, require_minimum
from onecharge.orders.card_numbers import holds_card_number
from onecharge.orders.ids import order_id_of
from onecharge.runtime.dynamodb import from_item


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
    """What is read of a document. Its item may have more attributes."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, hide_input_in_errors=True)

    due_date: str
    """As in the key: 2026-11-21, a day in UTC."""
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
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


FIELDS = tuple(DueDocument.model_fields)
"""The attributes that are read of an item."""
