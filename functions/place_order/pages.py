"""A page of a customer's orders: what may be asked, and where the next page begins."""

import base64
import binascii
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from onecharge.events import CustomerId, OrderId
from place_order.orders import Place

LIMIT_MAX = 50


class _Cursor(BaseModel):
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
    def place(self) -> Place | None:
        """Where the page begins; None at the newest order."""
        return None if self.cursor is None else _place_of(self.cursor)

    @field_validator("cursor")
    @classmethod
    def _is_one_of_ours(cls, cursor: str | None, _: ValidationInfo) -> str | None:
        if cursor is not None:
            _place_of(cursor)
        return cursor


def cursor_of(place: Place | None) -> str | None:
    """The place as text that a client sends back as it is."""
    if place is None:
        return None
    return base64.urlsafe_b64encode(json.dumps([place.order_id, place.placed_at]).encode()).decode()


def _place_of(cursor: str) -> Place:
    try:
        decoded: Any = json.loads(base64.urlsafe_b64decode(cursor))
        order_id, placed_at = decoded
        place = _Cursor(order_id=order_id, placed_at=placed_at)
    except (binascii.Error, ValueError, TypeError):
        raise PydanticCustomError("cursor", "Not a cursor that a page of orders ended with") from None
    return Place(place.order_id, place.placed_at)
