"""GET /orders: the customer's orders, the newest first, page by page.

    index by_customer ─► the ids of one page ─► these orders as they are now, with one request

The index is eventually consistent, so a new order appears after a moment; each order is read as it is now. The index
has keys only: an order writes to it once, and a change of its status does not.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onecharge.contract.events import reason_of
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import expression_values, read_items, to_item
from onecharge.runtime.http_api import JsonResponse, Request, respond
from onecharge.runtime.metrics import Alarm
from orders_api.http import Dependencies, invalid_request
from orders_api.responses import OrderList, order_view

BY_CUSTOMER = "by_customer"
"""The index that has the keys of each customer's orders."""

_UTC = "+00:00"
"""How each stored time ends. A cursor leaves it out: in a query, `+` is a space."""


class OrdersQuery(BaseModel):
    """The query of GET /orders."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    # One BatchGetItem reads up to 100 items (Amazon DynamoDB API Reference).
    limit: Annotated[int, Field(ge=1, le=50)] = 20
    cursor: Annotated[str, Field(pattern=r"^ord_[0-9a-f]{32}_[0-9T:.-]{19,26}$")] = Field(
        default_factory=str, description="The `next_cursor` of the page before."
    )
    """The last order of a page, and when it was placed."""


def list_orders(request: Request, deps: Dependencies) -> JsonResponse:
    """List the customer's orders, the newest first, page by page. A new order appears after a moment."""
    try:
        query = OrdersQuery.model_validate(request.event.query_string_parameters or {})
    except ValidationError as invalid:
        raise invalid_request(invalid, "The query does not ask for a page of orders.") from None
    items, next_cursor = read_page(deps.orders, request.subject, query)
    shown = []
    for item in items:
        try:
            shown.append(order_view(StoredOrder.from_item(item)))
        except Exception as error:  # Whatever is wrong with this order, the others are shown.
            deps.count(Alarm(Cause.UNEXPECTED_ERROR))
            why = reason_of(error) if isinstance(error, ValidationError) else type(error).__name__
            about = {"order_id": item["order_id"]["S"], "cause": Cause.UNEXPECTED_ERROR, "error": why}
            deps.logger.error("order left out of a list: its item breaks the schema", extra=about)
    return respond(HTTPStatus.OK, OrderList(orders=shown, next_cursor=next_cursor), request.correlation_id)


def read_page(orders: OrderStore, customer_id: str, query: OrdersQuery) -> tuple[list[Mapping[str, Any]], str | None]:
    """The items of one page, the newest first, and the next page's cursor, None on the last one.

    An order that expired since the index was read is left out, so a page may be shorter than was asked for. Two
    requests, one if it is empty. Raises ReadsThrottled.
    """
    start: dict[str, Any] = {}
    if query.cursor:
        order_id, _, placed_at = query.cursor.rpartition("_")
        key = {"order_id": order_id, "placed_at": placed_at + _UTC, "customer_id": customer_id}
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
    return page, f"{last['order_id']['S']}_{last['placed_at']['S'].removesuffix(_UTC)}" if last else None
