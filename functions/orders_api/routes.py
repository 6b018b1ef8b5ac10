"""The API's routes, and the resolver that is made from them: one module a route.

POST /orders                       place_order.py     an order's way begins here
GET  /orders                       list_orders.py
GET  /orders/{order_id}            get_order.py
POST /orders/{order_id}/payments   pay_again.py
POST /orders/{order_id}/cancel     cancel_order.py
POST /orders/{order_id}/refunds    refund_order.py
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.orders.store import NoSuchOrder
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import ReadsThrottled
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.problems import Problem
from orders_api.caller import Unauthenticated
from orders_api.cancel_order import ROUTE as CANCEL_ORDER
from orders_api.dependencies import Dependencies
from orders_api.get_order import ROUTE as GET_ORDER
from orders_api.http import Request, Route, Unavailable, order_not_found, route_not_found
from orders_api.list_orders import ROUTE as LIST_ORDERS
from orders_api.pay_again import ROUTE as PAY_AGAIN
from orders_api.place_order import ROUTE as PLACE_ORDER
from orders_api.refund_order import ROUTE as REFUND_ORDER

ROUTES: tuple[Route, ...] = (
    PLACE_ORDER,
    LIST_ORDERS,
    GET_ORDER,
    PAY_AGAIN,
    CANCEL_ORDER,
    REFUND_ORDER,
)


def resolver_of(deps: Dependencies) -> APIGatewayHttpResolver:
    """The resolver of all routes. Whatever a route raises becomes problem+json."""
    resolver = APIGatewayHttpResolver()
    for route in ROUTES:
        # The path as Powertools writes it: /orders/<order_id>.
        path = route.path.replace("{", "<").replace("}", ">")
        resolver.route(path, route.method)(_handler(route, resolver, deps))
    problems = ProblemResponses(resolver, deps)
    resolver.not_found(lambda _: problems.refused(route_not_found()))
    resolver.exception_handler(Unauthenticated)(problems.unauthenticated)
    resolver.exception_handler(Problem)(problems.refused)
    resolver.exception_handler(NoSuchOrder)(lambda _: problems.refused(order_not_found()))
    out_of_reach = [BotoCoreError, ClientError, ReadsThrottled, Unavailable]
    resolver.exception_handler(out_of_reach)(problems.unavailable)
    resolver.exception_handler(Exception)(problems.failed)
    return resolver


def _handler(route: Route, resolver: APIGatewayHttpResolver, deps: Dependencies) -> Callable[..., Response[Any]]:
    def handle(**path_parameters: str) -> Response[Any]:
        request = Request(resolver.current_event)
        caller = request.caller
        if route.scope:
            caller.require_scope(route.scope)
        return route.handler(request, deps, **path_parameters)

    return handle


class ProblemResponses:
    """The responses to what a route raises, as problem+json (RFC 9457)."""

    def __init__(self, resolver: APIGatewayHttpResolver, deps: Dependencies) -> None:
        self._resolver = resolver
        self._deps = deps

    @property
    def correlation_id(self) -> str:
        return Request(self._resolver.current_event).correlation_id

    def refused(self, problem: Problem) -> Response[str]:
        """The request cannot be fulfilled: 4xx, or 503 where a retry may be."""
        self._deps.count(f"Refused.{problem.status.value}")
        extra = {"problem": problem.kind, "correlation_id": self.correlation_id}
        self._deps.logger.info("request refused", extra=extra)
        return problem.response(self.correlation_id)

    def unauthenticated(self, _: Exception) -> Response[str]:
        """The claims are missing, so nobody is served: 401. It cannot happen while each route has its authorizer."""
        self._deps.count("Unauthenticated")
        self._deps.count(Alarm(Cause.UNAUTHENTICATED))
        self._deps.logger.error(
            "request refused: no verified claims, so the route has no authorizer",
            extra={"correlation_id": self.correlation_id},
        )
        detail = "The request has no verified access token."
        return Problem(HTTPStatus.UNAUTHORIZED, "unauthenticated", detail).response(self.correlation_id)

    def unavailable(self, error: Exception) -> Response[str]:
        """AWS or the payment service does not answer: 503."""
        extra = {"error": type(error).__name__, "correlation_id": self.correlation_id}
        self._deps.logger.error("unavailable: a table, or the payment service", extra=extra)
        detail = "The result is unknown. Retry, with the same Idempotency-Key if the request had one."
        return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "try-again", detail).response(self.correlation_id)

    def failed(self, _: Exception) -> Response[str]:
        """A defect of ours: 500."""
        self._deps.logger.exception("request failed", extra={"correlation_id": self.correlation_id})
        detail = "An internal error. Retrying with the same Idempotency-Key is safe."
        return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", detail).response(self.correlation_id)
