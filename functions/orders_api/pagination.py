"""A page of a customer's orders: its query, and the cursor of the next page."""

import base64
import binascii
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from onecharge.contract.events import CustomerId, OrderId
from orders_api.orders import Cursor

LIMIT_MAX = 50


class _CursorFields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    order_id: OrderId
    placed_at: Annotated[str, Field(pattern=r"^[0-9T:.+-]{19,40}$")]


class OrdersQuery(BaseModel):
    """The query of GET /orders."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    customer_id: CustomerId
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 20
    cursor: str | None = Field(default=None, max_length=500)

    @property
    def after(self) -> Cursor | None:
        """Where the page begins; None at the newest order."""
        return None if self.cursor is None else _decoded(self.cursor)

    @field_validator("cursor")
    @classmethod
    def _is_one_of_ours(cls, cursor: str | None, _: ValidationInfo) -> str | None:
        if cursor is not None:
            _decoded(cursor)
        return cursor


def encoded(cursor: Cursor | None) -> str | None:
    """The cursor as text, which a client sends back unchanged."""
    if cursor is None:
        return None
    return base64.urlsafe_b64encode(json.dumps([cursor.order_id, cursor.placed_at]).encode()).decode()


def _decoded(cursor: str) -> Cursor:
    try:
        decoded: Any = json.loads(base64.urlsafe_b64decode(cursor))
        order_id, placed_at = decoded
        fields = _CursorFields(order_id=order_id, placed_at=placed_at)
    except (binascii.Error, ValueError, TypeError):
        raise PydanticCustomError("cursor", "Not a cursor that a page of orders ended with") from None
    return Cursor(fields.order_id, fields.placed_at)
