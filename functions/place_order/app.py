"""place_order: POST /orders and GET /orders/{order_id}. An order's way begins here.

POST /orders ─► refuse card numbers ─► validate ─► one conditional write ─► 202
"""

import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response, content_types
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError

from onecharge.aws import client_config
from onecharge.events import ORDER_ID_PATTERN
from onecharge.metrics import Counts
from onecharge.problems import Problem
from onecharge.states import OrderStatus
from place_order.card_numbers import holds_card_number
from place_order.orders import KeyReused, OrderRequest, Orders, StoredOrder
from place_order.problems import invalid_request

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
"""Visible ASCII without spaces, no longer than Stripe allows for its own keys."""


class OrdersApi:
    """The routes over the Orders table; `clock` gives the present time in UTC."""

    def __init__(self, orders: Orders, logger: Logger, counts: Counts, clock: Callable[[], datetime]) -> None:
        self._orders = orders
        self._logger = logger
        self._counts = counts
        self._clock = clock
        self.resolver = APIGatewayHttpResolver()
        self.resolver.post("/orders")(self.place_order)
        self.resolver.get("/orders/<order_id>")(self.get_order)
        self.resolver.not_found(lambda _: self._not_found().response(self._correlation_id()))
        self.resolver.exception_handler(Problem)(self._refuse)
        self.resolver.exception_handler([BotoCoreError, ClientError])(self._unavailable)
        self.resolver.exception_handler(Exception)(self._failed)

    def place_order(self) -> Response[dict[str, Any]]:
        """Store the order, once however often the client asks; its charge follows on its own."""
        key, body = self._idempotency_key(), self._body()
        self._refuse_card_numbers(key, body)
        try:
            request = OrderRequest.model_validate_json(body)
        except ValidationError as invalid:
            raise invalid_request(invalid) from None
        try:
            order, is_new = self._orders.place(request, key, correlation_id=self._correlation_id(), now=self._clock())
        except KeyReused:
            raise Problem(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "idempotency-key-reused",
                "This Idempotency-Key was used for an order with another body. Use a new key for a new order.",
            ) from None
        self._counts("OrderPlaced" if is_new else "OrderRepeated")
        self._log("order placed" if is_new else "order found, placed before", order)
        # A retry gets the very answer that the first try got, wherever the order stands by now.
        return self._answer(
            HTTPStatus.ACCEPTED,
            order,
            OrderStatus.PENDING,
            {"Location": f"/orders/{order.order_id}"} | ({} if is_new else {"Idempotent-Replayed": "true"}),
        )

    def get_order(self, order_id: str) -> Response[dict[str, Any]]:
        """Tell where the order stands."""
        order = self._orders.find(order_id) if re.fullmatch(ORDER_ID_PATTERN, order_id) else None
        if order is None:
            raise self._not_found()
        return self._answer(HTTPStatus.OK, order, order.status, {})

    def _idempotency_key(self) -> str:
        key = self.resolver.current_event.headers.get("idempotency-key") or ""
        if not _IDEMPOTENCY_KEY.fullmatch(key):
            raise Problem(
                HTTPStatus.BAD_REQUEST,
                "idempotency-key-missing",
                "The header Idempotency-Key is required: 1 to 255 visible ASCII characters, the same for every "
                "retry of one order and new for each new order.",
            )
        return key

    def _body(self) -> str:
        try:
            return self.resolver.current_event.decoded_body or ""
        except ValueError:
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid-json", "The body is not UTF-8 text.") from None

    def _refuse_card_numbers(self, key: str, body: str) -> None:
        query = unquote(self.resolver.current_event.raw_query_string)
        if any(holds_card_number(text) for text in (key, query, body, _unescaped(body))):
            raise Problem(
                HTTPStatus.BAD_REQUEST,
                "card-number",
                "The request holds what looks like a card number. Send the id of a PaymentMethod instead.",
            )

    def _not_found(self) -> Problem:
        return Problem(HTTPStatus.NOT_FOUND, "not-found", "There is no such order.")

    def _refuse(self, problem: Problem) -> Response[str]:
        self._counts(f"Refused.{problem.status.value}")
        self._logger.info(
            "request refused",
            extra={"problem": problem.kind, "correlation_id": self._correlation_id()},
        )
        return problem.response(self._correlation_id())

    def _unavailable(self, error: BotoCoreError | ClientError) -> Response[str]:
        self._logger.error(
            "table not reached",
            extra={"error": type(error).__name__, "correlation_id": self._correlation_id()},
        )
        return Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "try-again",
            "The order may or may not be stored. Send it again with the same Idempotency-Key.",
        ).response(self._correlation_id())

    def _failed(self, _: Exception) -> Response[str]:
        self._logger.exception("request failed", extra={"correlation_id": self._correlation_id()})
        return Problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "internal",
            "Something went wrong here. Sending the order again with the same Idempotency-Key is safe.",
        ).response(self._correlation_id())

    def _answer(
        self, status: HTTPStatus, order: StoredOrder, shown: OrderStatus, headers: dict[str, str]
    ) -> Response[dict[str, Any]]:
        return Response(
            status_code=status.value,
            content_type=content_types.APPLICATION_JSON,
            body={
                "order_id": order.order_id,
                "status": shown,
                "amount": order.amount_minor,
                "currency": order.currency,
            },
            headers={"X-Correlation-Id": order.correlation_id, **headers},
        )

    def _correlation_id(self) -> str:
        return self.resolver.current_event.request_context.request_id

    def _log(self, message: str, order: StoredOrder) -> None:
        self._logger.info(
            message, extra={"order_id": order.order_id, "attempt": 1, "correlation_id": order.correlation_id}
        )


def _unescaped(body: str) -> str:
    r"""The body with its `\u0034` escapes resolved, in which a card number could hide from a search."""
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda escape: chr(int(escape.group(1), 16)), body)


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.counts = Counts(Metrics())
        self.api = OrdersApi(
            Orders(boto3.client("dynamodb", config=client_config()), environment["ORDERS_TABLE"]),
            Logger(),
            self.counts,
            clock=lambda: datetime.now(UTC),
        )


@cache
def _application() -> Application:
    return Application(os.environ)


def handler(event: dict[str, Any], context: "LambdaContext") -> dict[str, Any]:
    """Answer one HTTP request."""
    application = _application()
    try:
        return application.api.resolver.resolve(event, context)
    finally:
        application.counts.flush()
