"""orders_api: the order service's HTTP API. This file only puts the parts together.

POST /orders                       place_order.py     start reading here
GET  /orders                       list_orders.py
GET  /orders/{order_id}            get_order.py
GET  /prices                       list_prices.py
POST /orders/{order_id}/payments   pay_again.py
POST /orders/{order_id}/cancel     cancel_order.py
POST /orders/{order_id}/refunds    refund_order.py

GET /orders/{order_id}/payment is the payment service's: get_payment.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver

from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.store import NoSuchOrder, OrderStore
from onecharge.runtime.dynamodb import ReadsThrottled
from onecharge.runtime.functions import Context, lambda_handler
from onecharge.runtime.http_api import Route, resolver_of
from onecharge.runtime.parts import Parts, part
from orders_api.cancel_order import ROUTE as CANCEL_ORDER
from orders_api.get_order import ROUTE as GET_ORDER
from orders_api.http import Dependencies
from orders_api.list_orders import ROUTE as LIST_ORDERS
from orders_api.list_prices import ROUTE as LIST_PRICES
from orders_api.pay_again import ROUTE as PAY_AGAIN
from orders_api.place_order import ROUTE as PLACE_ORDER
from orders_api.prices import PRICES, price_of
from orders_api.refund_order import ROUTE as REFUND_ORDER

ROUTES: tuple[Route, ...] = (PLACE_ORDER, LIST_ORDERS, GET_ORDER, LIST_PRICES, PAY_AGAIN, CANCEL_ORDER, REFUND_ORDER)


def orders_resolver(deps: Dependencies) -> APIGatewayHttpResolver:
    """The resolver of all routes, which work with these stores."""
    return resolver_of(
        ROUTES, deps, logger=deps.logger, count=deps.count, not_found=[NoSuchOrder], outages=[ReadsThrottled]
    )


class OrdersApiParts(Parts):
    @part
    def orders(self) -> OrderStore:
        return OrderStore(self.dynamodb, self.environment["ORDERS_TABLE"])

    @part
    def refunds(self) -> OrderRefundStore:
        return OrderRefundStore(
            self.dynamodb, self.environment["ORDER_REFUNDS_TABLE"], self.environment["ORDERS_TABLE"]
        )

    @part
    def resolver(self) -> APIGatewayHttpResolver:
        return orders_resolver(
            Dependencies(
                orders=self.orders,
                refunds=self.refunds,
                shop=self.environment["SHOP"],
                prices=PRICES,
                price_of=price_of,
                logger=self.logger,
                count=self.counts,
                clock=partial(datetime.now, UTC),
            )
        )


@lambda_handler(OrdersApiParts)
def handler(parts: OrdersApiParts, event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Answer one HTTP request."""
    return parts.resolver.resolve(event, context)
