"""GET /orders: the customer's orders, the newest first, page by page.

    index by_customer ─► the ids of one page ─► these orders as they are now, with one request

Which orders there are is eventually consistent, as an index is; each one is shown as it is. The index has keys only: an
order writes to it once, and a change of its status does not.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from onecharge.contract.events import OrderId
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import expression_values, from_item, to_item
from onecharge.runtime.http_api import JsonResponse, Request, Route
from onecharge.runtime.metrics import Alarm
from orders_api.http import Dependencies, invalid_request
from orders_api.responses import OrderList, order_view

BY_CUSTOMER = "by_customer"
"""The index that has the keys of a customer's orders; like every index it is eventually consistent."""

LIMIT_MAX = 50
"""Of one page: BatchGetItem reads up to 100 items at once (Amazon DynamoDB API Reference)."""


class Cursor(BaseModel):
    """Where a page ends: the last order on it. A client sends it back unchanged, as text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    order_id: OrderId
    placed_at: Annotated[str, Field(pattern=r"^[0-9T:.+-]{19,40}$")]

    def encoded(self) -> str:
        return base64.urlsafe_b64encode(json.dumps([self.order_id, self.placed_at]).encode()).decode()

    @classmethod
    def decoded(cls, text: str) -> "Cursor":
        """Raises a validation error that does not repeat the text."""
        try:
            order_id, placed_at = json.loads(base64.urlsafe_b64decode(text))
            return cls(order_id=order_id, placed_at=placed_at)
        except (binascii.Error, ValueError, TypeError):
            raise PydanticCustomError("cursor", "Not a cursor that a page of orders ended with") from None


class OrdersQuery(BaseModel):
    """The query of GET /orders."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 20
    cursor: str | None = Field(default=None, max_length=500)

    @property
    def after(self) -> Cursor | None:
        """Where the page begins; None at the newest order."""
        return None if self.cursor is None else Cursor.decoded(self.cursor)

    @field_validator("cursor")
    @classmethod
    def _is_one_of_ours(cls, cursor: str | None) -> str | None:
        if cursor is not None:
            Cursor.decoded(cursor)
        return cursor


@dataclass(frozen=True)
class Page:
    """Some of a customer's orders, the newest first; `end` is where the next page begins, None on the last one.

    An order that expired since the index was read is left out, so a page may be shorter than was asked for.
    """

    orders: list[StoredOrder]
    unreadable: list[str]
    """The ids of orders whose items break the schema; they are left out."""
    end: Cursor | None


def list_orders(request: Request, deps: Dependencies) -> JsonResponse:
    """Show one page of the customer's orders."""
    try:
        query = OrdersQuery.model_validate(request.event.query_string_parameters or {})
    except ValidationError as invalid:
        raise invalid_request(invalid, "The query does not ask for a page of orders.") from None
    page = read_page(deps.orders, request.customer_id, query)
    for order_id in page.unreadable:
        deps.count("OrderUnreadable")
        deps.count(Alarm(Cause.ITEM_UNREADABLE))
        deps.logger.error(
            "order left out of a list: its item breaks the schema",
            extra={"order_id": order_id, "cause": Cause.ITEM_UNREADABLE},
        )
    cursor = page.end.encoded() if page.end else None
    return request.respond(HTTPStatus.OK, OrderList(orders=[*map(order_view, page.orders)], next_cursor=cursor))


def read_page(orders: OrderStore, customer_id: str, query: OrdersQuery) -> Page:
    """One page, with two requests: one if it is empty. Raises ReadsThrottled."""
    after = query.after
    start: dict[str, Any] = {}
    if after:
        key = {"order_id": after.order_id, "placed_at": after.placed_at, "customer_id": customer_id}
        start = {"ExclusiveStartKey": to_item(key)}
    answer = orders.client.query(
        TableName=orders.table,
        IndexName=BY_CUSTOMER,
        KeyConditionExpression="customer_id = :customer_id",
        ExpressionAttributeValues=expression_values(customer_id=customer_id),
        ScanIndexForward=False,
        Limit=query.limit,
        **start,
    )
    page, last = Page([], [], None), answer.get("LastEvaluatedKey")
    order_ids = [key["order_id"]["S"] for key in answer["Items"]]
    items = orders.find_all_of(customer_id, order_ids)
    for order_id in order_ids:
        if order_id not in items:
            continue
        try:
            page.orders.append(StoredOrder.from_item(items[order_id]))
        except Exception:  # Whatever is wrong with this order, the others are shown.
            page.unreadable.append(order_id)
    values = from_item(last) if last else {}
    # Not validated: the index may hold an item that breaks the schema.
    end = Cursor.model_construct(order_id=values["order_id"], placed_at=values["placed_at"]) if last else None
    return Page(page.orders, page.unreadable, end)


ROUTE = Route(
    list_orders,
    "GET",
    "/orders",
    "List the customer's orders, the newest first, page by page. A new order appears in it after a moment.",
    HTTPStatus.OK,
    OrderList,
    {HTTPStatus.BAD_REQUEST: ("invalid-request",)},
    query=OrdersQuery,
)
