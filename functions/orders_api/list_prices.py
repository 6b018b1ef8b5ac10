"""GET /prices: what a page shows before it places an order."""

from http import HTTPStatus

from pydantic import Field

from onecharge.runtime.http_api import JsonResponse, Request, ResponseModel, respond
from orders_api.http import Dependencies


class PriceView(ResponseModel):
    """The price of one piece in one currency."""

    sku: str
    currency: str
    unit_amount: int = Field(description="In the minor unit of the currency.")


class PriceList(ResponseModel):
    """All prices."""

    prices: list[PriceView]


def list_prices(request: Request, deps: Dependencies) -> JsonResponse:
    """List the prices that a new order has now, in each currency."""
    prices = [
        PriceView(sku=sku, currency=currency, unit_amount=unit_amount)
        for sku, amounts in deps.prices.items()
        for currency, unit_amount in amounts.items()
    ]
    return respond(HTTPStatus.OK, PriceList(prices=prices), request.correlation_id)
