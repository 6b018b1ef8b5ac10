"""orders_api: the order service's HTTP API. Start reading at place_order.py.

GET /orders/{order_id}/payment is the payment service's: get_payment.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.store import NoSuchOrder, OrderStore
from onecharge.runtime.http_api import HttpApi, JsonResponse, order_not_found
from onecharge.runtime.parts import Context, Parts, lambda_handler, part
from orders_api.cancel_order import cancel_order
from orders_api.get_order import get_order
from orders_api.http import Dependencies
from orders_api.list_orders import list_orders
from orders_api.list_prices import list_prices
from orders_api.pay_again import pay_again
from orders_api.place_order import place_order
from orders_api.prices import PRICES, price_of
from orders_api.refund_order import refund_order


def orders_api(deps: Dependencies) -> HttpApi:
    """All routes, over these stores. Every one needs a token: GET /prices, too, since nothing here is open."""
    app = HttpApi(deps.logger, deps.count)
    app.exception_handler(NoSuchOrder)(lambda _: app.refused(order_not_found()))

    @app.post("/orders")
    def place() -> JsonResponse:
        return place_order(app.authenticated(), deps)

    @app.get("/orders")
    def list_() -> JsonResponse:
        return list_orders(app.authenticated(), deps)

    @app.get("/orders/<order_id>")
    def get(order_id: str) -> JsonResponse:
        return get_order(app.authenticated(order_id), deps, order_id)

    @app.post("/orders/<order_id>/payments")
    def pay(order_id: str) -> JsonResponse:
        return pay_again(app.authenticated(order_id), deps, order_id)

    @app.post("/orders/<order_id>/cancel")
    def cancel(order_id: str) -> JsonResponse:
        return cancel_order(app.authenticated(order_id), deps, order_id)

    @app.post("/orders/<order_id>/refunds")
    def refund(order_id: str) -> JsonResponse:
        return refund_order(app.authenticated(order_id), deps, order_id)

    @app.get("/prices")
    def prices() -> JsonResponse:
        return list_prices(app.authenticated(), deps)

    return app


class OrdersApiParts(Parts):
    @part
    def resolver(self) -> HttpApi:
        orders_table = self.environment["ORDERS_TABLE"]
        return orders_api(
            Dependencies(
                orders=OrderStore(self.dynamodb, orders_table),
                refunds=OrderRefundStore(self.dynamodb, self.environment["ORDER_REFUNDS_TABLE"], orders_table),
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
