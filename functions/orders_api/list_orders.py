"""GET /orders: the customer's orders, the newest first, page by page.

    index by_customer ─► the ids of one page ─► these orders as they are now, with one request

The index is eventually consistent, so a new order appears after a moment; each order is read as it is now. The index
has keys only: an order writes to it once, and a change of its status does not.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from onecharge.contract.events import OrderId
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import expression_values, read_items, to_item
from onecharge.runtime.http_api import JsonResponse, Request, Route
from onecharge.runtime.metrics import Alarm
from orders_api.http import Dependencies, invalid_request
from orders_api.responses import OrderList, order_view

BY_CUSTOMER = "by_customer"
"""The index that has the keys of each customer's orders."""

LIMIT_MAX = 50
"""The most orders of one page. One BatchGetItem reads up to 100 items (Amazon DynamoDB API Reference)."""


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


def list_orders(request: Request, deps: Dependencies) -> JsonResponse:
    """Show one page of the customer's orders."""
    try:
        query = OrdersQuery.model_validate(request.event.query_string_parameters or {})
    except ValidationError as invalid:
        raise invalid_request(invalid, "The query does not ask for a page of orders.") from None
    items, end = read_page(deps.orders, request.customer_id, query)
    shown = []
    for item in items:
        try:
            shown.append(order_view(StoredOrder.from_item(item)))
        except Exception as error:  # Whatever is wrong with this order, the others are shown.
            deps.count("OrderUnreadable")
            deps.count(Alarm(Cause.UNEXPECTED_ERROR))
            deps.logger.error(
                "order left out of a list: its item breaks the schema",
                extra={
                    "order_id": item["order_id"]["S"],
                    "cause": Cause.UNEXPECTED_ERROR,
                    "error": type(error).__name__,
                    "fields": _invalid_fields(error),
                },
            )
    page = OrderList(orders=shown, next_cursor=end.encoded() if end else None)
    return request.respond(HTTPStatus.OK, page)


def _invalid_fields(error: Exception) -> list[str]:
    """The names of the fields that break the schema, without their values."""
    if not isinstance(error, ValidationError):
        return []
    errors = error.errors(include_input=False, include_url=False, include_context=False)
    return [".".join(map(str, each["loc"])) for each in errors]


def read_page(
    orders: OrderStore, customer_id: str, query: OrdersQuery
) -> tuple[list[Mapping[str, Any]], Cursor | None]:
    """The items of one page, the newest first, and where the next page begins, None on the last one.

    An order that expired since the index was read is left out, so a page may be shorter than was asked for. Two
    requests, one if it is empty. Raises ReadsThrottled.
    """
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
    order_ids = [key["order_id"]["S"] for key in answer["Items"]]
    found = read_items(orders.client, orders.table, [{"order_id": order_id} for order_id in order_ids])
    items = {item["order_id"]["S"]: item for item in found if item["customer_id"] == {"S": customer_id}}
    page = [items[order_id] for order_id in order_ids if order_id in items]
    last = answer.get("LastEvaluatedKey")
    if not last:
        return page, None
    # Not validated: the index may hold an item that breaks the schema.
    return page, Cursor.model_construct(order_id=last["order_id"]["S"], placed_at=last["placed_at"]["S"])


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
