"""place_order: the order service's HTTP API. An order's way begins here.

POST /orders                       ─► refuse card numbers ─► validate ─► one conditional write ─► 202
POST /orders/{order_id}/payments   ─► the same: another card, after a decline
POST /orders/{order_id}/refunds    ─► the same, in one transaction with the reservation of the amount
POST /orders/{order_id}/cancel     ─► ask the payment service ─► one conditional write ─► 200, or 409: it is paid
GET  /orders/{order_id}, /orders?customer_id=…
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
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from onecharge.aws import client_config
from onecharge.card_numbers import holds_card_number
from onecharge.events import ORDER_ID_PATTERN
from onecharge.metrics import Counts
from onecharge.problems import Problem
from onecharge.states import OrderStatus, RefundStatus
from place_order.answers import AcceptedOrder, AcceptedRefund, Answer, Order, OrderList, OrderWithRefunds, Refund
from place_order.declines import message_for
from place_order.operations import IDEMPOTENCY_KEY_PATTERN, OPERATIONS
from place_order.orders import (
    KeyReused,
    NoSuchOrder,
    NotNow,
    OrderRequest,
    Orders,
    Outcome,
    PaymentRequest,
    StoredOrder,
)
from place_order.pages import OrdersQuery, cursor_of
from place_order.payments import CANCELED, IN_PROGRESS, NEEDS_REVIEW, PAID, NoAnswer, Payments
from place_order.problems import invalid_request
from place_order.refunds import OrderMoved, RefundRequest, Refunds, StoredRefund, TooMuch

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_CANCEL_TRIES = 3
"""How often the order may move while it is being canceled, before the client is asked to try again."""

_REFUND_TRIES = 3
"""How often other refunds of the same order may come in between, before the client is asked to try again."""

_TOO_LATE = {
    PAID: Problem(HTTPStatus.CONFLICT, "already-paid", "The order is paid. It can be refunded, not canceled."),
    NEEDS_REVIEW: Problem(HTTPStatus.CONFLICT, "needs-review", "A person is looking at this order's payment."),
    IN_PROGRESS: Problem(
        HTTPStatus.CONFLICT, "payment-in-progress", "The order is being charged at this moment. Ask again."
    ),
}
"""Why an order is not canceled, by what the payment service answers or the order's own status says."""


class OrdersApi:
    """The routes over the Orders and Refunds tables; `clock` gives the present time in UTC."""

    def __init__(
        self,
        orders: Orders,
        refunds: Refunds,
        payments: Payments,
        logger: Logger,
        counts: Counts,
        clock: Callable[[], datetime],
    ) -> None:
        self._orders = orders
        self._refunds = refunds
        self._payments = payments
        self._logger = logger
        self._counts = counts
        self._clock = clock
        self.resolver = APIGatewayHttpResolver()
        # By name, so that the table which describes the API is the only place where a route can be added.
        for operation in OPERATIONS:
            self.resolver.route(operation.route, operation.method)(getattr(self, operation.handler))
        self.resolver.not_found(lambda _: self._not_found().response(self._correlation_id()))
        self.resolver.exception_handler(Problem)(self._refuse)
        self.resolver.exception_handler(NoSuchOrder)(lambda _: self._refuse(self._not_found()))
        self.resolver.exception_handler([BotoCoreError, ClientError, NoAnswer])(self._unavailable)
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
        replayed = {} if is_new else {"Idempotent-Replayed": "true"}
        return self._accepted(order, {"Location": f"/orders/{order.order_id}", **replayed})

    def get_order(self, order_id: str) -> Response[dict[str, Any]]:
        """Tell where the order stands, and what was refunded of it."""
        order = self._find(order_id)
        refunds = self._refunds.of_order(order_id) if order.status is OrderStatus.PAID else []
        view = _customers_view(order).model_dump(exclude_unset=True)
        shown = OrderWithRefunds(**view, refunds=[Refund(**_refund(each)) for each in refunds])
        return self._json(HTTPStatus.OK, shown, {"X-Correlation-Id": order.correlation_id})

    def list_orders(self) -> Response[dict[str, Any]]:
        """A customer's orders, the newest first, page by page."""
        given = self.resolver.current_event.query_string_parameters or {}
        try:
            query = OrdersQuery.model_validate(given)
        except ValidationError as invalid:
            raise invalid_request(invalid, "The query does not ask for a customer's orders.") from None
        page = self._orders.of_customer(query.customer_id, after=query.place, limit=query.limit)
        shown = OrderList(orders=[_customers_view(order) for order in page.orders], next_cursor=cursor_of(page.after))
        return self._json(HTTPStatus.OK, shown, {})

    def pay_again(self, order_id: str) -> Response[dict[str, Any]]:
        """Make another attempt, with another card, once however often the client asks; its charge follows."""
        key, body = self._idempotency_key(), self._body()
        self._refuse_card_numbers(key, body)
        self._require_id(order_id)
        try:
            request = PaymentRequest.model_validate_json(body)
        except ValidationError as invalid:
            raise invalid_request(invalid, "The body does not name a payment method.") from None
        try:
            order, is_new = self._orders.pay_again(order_id, request.payment_method, key, now=self._clock())
        except NotNow as refused:
            raise Problem(
                HTTPStatus.CONFLICT,
                "not-declined",
                f"The order is {refused.order.status}: another card can be tried only while it is PAYMENT_DECLINED.",
            ) from None
        self._counts("AttemptMade" if is_new else "AttemptRepeated")
        self._log("attempt made" if is_new else "attempt found, made before", order)
        replayed = {} if is_new else {"Idempotent-Replayed": "true"}
        return self._accepted(order, replayed)

    def cancel_order(self, order_id: str) -> Response[dict[str, Any]]:
        """Cancel the order unless it is paid; asked again, the answer is the same."""
        order = self._find(order_id)
        for _ in range(_CANCEL_TRIES):
            if order.status in (OrderStatus.PAID, OrderStatus.NEEDS_REVIEW):
                raise _TOO_LATE[order.status]
            if order.status is not OrderStatus.CANCELED:
                cancellation = self._payments.cancel(order.event)
                if cancellation != CANCELED:
                    raise _TOO_LATE[cancellation]
            try:
                canceled = self._orders.cancel(order)
            except NotNow as moved:
                # Another card was tried meanwhile, or the bank has decided: the question is a new one.
                order = moved.order
                continue
            self._counts("OrderCanceled")
            self._log("order canceled", canceled)
            return self._shown(HTTPStatus.OK, canceled)
        raise _TOO_LATE[IN_PROGRESS]

    def refund_order(self, order_id: str) -> Response[dict[str, Any]]:
        """Reserve a part of what was paid, or all that is left, once however often the client asks; it follows."""
        key, body = self._idempotency_key(), self._body()
        self._refuse_card_numbers(key, body)
        self._require_id(order_id)
        try:
            request = RefundRequest.model_validate_json(body or "{}")
        except ValidationError as invalid:
            raise invalid_request(invalid, "The body does not name an amount that can be refunded.") from None
        refund, is_new = self._requested(order_id, request, key)
        self._counts("RefundRequested" if is_new else "RefundRepeated")
        self._logger.info(
            "refund requested" if is_new else "refund found, requested before",
            extra={"order_id": order_id, "refund_id": refund.refund_id, "correlation_id": refund.correlation_id},
        )
        # A retry gets the very answer that the first try got, wherever the refund stands by now.
        return self._json(
            HTTPStatus.ACCEPTED,
            AcceptedRefund(
                **{**_refund(refund), "status": RefundStatus.PENDING}, order_id=order_id, currency=refund.currency
            ),
            {"Location": f"/orders/{order_id}", "X-Correlation-Id": refund.correlation_id}
            | ({} if is_new else {"Idempotent-Replayed": "true"}),
        )

    def _requested(self, order_id: str, request: RefundRequest, key: str) -> tuple[StoredRefund, bool]:
        for _ in range(_REFUND_TRIES):
            try:
                return self._refunds.request(
                    self._find(order_id), request, key, correlation_id=self._correlation_id(), now=self._clock()
                )
            except OrderMoved:
                continue
            except NotNow as refused:
                detail = f"The order is {refused.order.status}: only what is PAID can be refunded."
                raise Problem(HTTPStatus.CONFLICT, "not-paid", detail) from None
            except TooMuch:
                detail = "The amount is more than is left of what was paid."
                raise Problem(HTTPStatus.CONFLICT, "more-than-is-left", detail) from None
            except KeyReused:
                raise Problem(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    "idempotency-key-reused",
                    "This Idempotency-Key was used for a refund of another amount. Use a new key for a new refund.",
                ) from None
            except PydanticCustomError as unfit:
                raise Problem(HTTPStatus.BAD_REQUEST, "invalid-request", unfit.message()) from None
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "try-again", "The order is being refunded elsewhere. Ask again.")

    def _find(self, order_id: str) -> StoredOrder:
        self._require_id(order_id)
        order = self._orders.find(order_id)
        if order is None:
            raise self._not_found()
        return order

    def _require_id(self, order_id: str) -> None:
        if not re.fullmatch(ORDER_ID_PATTERN, order_id):
            raise self._not_found()

    def _idempotency_key(self) -> str:
        key = self.resolver.current_event.headers.get("idempotency-key") or ""
        if not re.fullmatch(IDEMPOTENCY_KEY_PATTERN, key):
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
            "not reached: a table, or the payment service",
            extra={"error": type(error).__name__, "correlation_id": self._correlation_id()},
        )
        return Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "try-again",
            "Nobody can tell what became of it. Send the request again, with the same Idempotency-Key if it had one.",
        ).response(self._correlation_id())

    def _failed(self, _: Exception) -> Response[str]:
        self._logger.exception("request failed", extra={"correlation_id": self._correlation_id()})
        return Problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "internal",
            "Something went wrong here. Sending the request again, with the same Idempotency-Key, is safe.",
        ).response(self._correlation_id())

    def _accepted(self, order: StoredOrder, headers: dict[str, str]) -> Response[dict[str, Any]]:
        accepted = AcceptedOrder(
            order_id=order.order_id, status=OrderStatus.PENDING, amount=order.amount_minor, currency=order.currency
        )
        return self._json(HTTPStatus.ACCEPTED, accepted, {"X-Correlation-Id": order.correlation_id, **headers})

    def _shown(self, status: HTTPStatus, order: StoredOrder) -> Response[dict[str, Any]]:
        return self._json(status, _customers_view(order), {"X-Correlation-Id": order.correlation_id})

    def _json(self, status: HTTPStatus, answer: Answer, headers: dict[str, str]) -> Response[dict[str, Any]]:
        return Response(
            status_code=status.value,
            content_type=content_types.APPLICATION_JSON,
            body=answer.model_dump(mode="json", exclude_unset=True),
            headers={"X-Correlation-Id": self._correlation_id(), "Cache-Control": "no-store", **headers},
        )

    def _correlation_id(self) -> str:
        return self.resolver.current_event.request_context.request_id

    def _log(self, message: str, order: StoredOrder) -> None:
        self._logger.info(
            message,
            extra={
                "order_id": order.order_id,
                "attempt": order.attempt,
                "correlation_id": order.correlation_id,
            },
        )


def _customers_view(order: StoredOrder) -> Order:
    """The order as its customer sees it."""
    present = () if any(each.attempt == order.attempt for each in order.outcomes) else (order.attempt,)
    attempts = [*map(_attempt, order.outcomes), *({"attempt": each, "status": order.status} for each in present)]
    shown: dict[str, Any] = {
        "order_id": order.order_id,
        "status": order.status,
        "amount": order.amount_minor,
        "currency": order.currency,
        "placed_at": order.placed_at,
        "attempts": attempts,
        "amount_refunded": order.refunded_minor,
    }
    waiting = [each for each in order.outcomes if each.attempt == order.attempt and each.client_secret]
    if order.status is OrderStatus.REQUIRES_ACTION and waiting:
        shown["client_secret"] = waiting[0].client_secret
    return Order(**shown)


def _attempt(outcome: Outcome) -> dict[str, Any]:
    shown: dict[str, Any] = {"attempt": outcome.attempt, "status": outcome.status}
    if outcome.status is OrderStatus.PAYMENT_DECLINED:
        shown |= {"decline_code": outcome.decline_code, "message": message_for(outcome.decline_code)}
    return shown


def _refund(refund: StoredRefund) -> dict[str, Any]:
    return {
        "refund_id": refund.refund_id,
        "status": refund.status,
        "amount": refund.amount_minor,
        "requested_at": refund.requested_at,
    }


def _unescaped(body: str) -> str:
    r"""The body with its `\u0034` escapes resolved, in which a card number could hide from a search."""
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda escape: chr(int(escape.group(1), 16)), body)


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.counts = Counts(Metrics())
        dynamodb, orders_table = boto3.client("dynamodb", config=client_config()), environment["ORDERS_TABLE"]
        self.api = OrdersApi(
            Orders(dynamodb, orders_table),
            Refunds(dynamodb, environment["REFUNDS_TABLE"], orders_table),
            Payments(
                # As long as cancel_charge may take, and once: who asks again is answered the same.
                boto3.client(
                    "lambda", config=Config(connect_timeout=1, read_timeout=22, retries={"total_max_attempts": 1})
                ),
                environment["CANCEL_CHARGE_FUNCTION"],
            ),
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
