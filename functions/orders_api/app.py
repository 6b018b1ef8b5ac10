"""orders_api: the order service's HTTP API. An order's way begins here.

POST /orders                       ─► refuse card numbers ─► validate ─► one conditional write ─► 202
POST /orders/{order_id}/payments   ─► the same: another card, after a decline
POST /orders/{order_id}/refunds    ─► the same, in one transaction with the reservation of the amount
POST /orders/{order_id}/cancel     ─► ask the payment service ─► one conditional write ─► 200, 202, or 409: it is paid
GET  /orders/{order_id}            ─► while it requires action: ask the payment service for the client secret
GET  /orders?customer_id=…
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response, content_types
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from onecharge.contract.events import ATTEMPTS_MAX, ORDER_ID_PATTERN
from onecharge.contract.questions import Cancellation
from onecharge.contract.states import OrderStatus, RefundStatus
from onecharge.orders.card_numbers import body_holds_card_number, holds_card_number
from onecharge.runtime.aws import client_config
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Counts
from onecharge.runtime.problems import Problem
from orders_api.declines import message_for
from orders_api.operations import IDEMPOTENCY_KEY_PATTERN, OPERATIONS
from orders_api.orders import (
    AttemptsExhausted,
    KeyReused,
    NoSuchOrder,
    OrderRequest,
    Orders,
    OrderStatusConflict,
    Outcome,
    PaymentMethodRefused,
    PaymentRequest,
    StoredOrder,
)
from orders_api.pagination import OrdersQuery, encoded
from orders_api.payments import CancellationUnknown, ClientSecretUnknown, Payments
from orders_api.problems import invalid_request
from orders_api.refunds import ExceedsRefundable, OrderChanged, RefundRequest, Refunds, StoredRefund
from orders_api.responses import (
    AcceptedOrder,
    AcceptedRefund,
    Order,
    OrderList,
    OrderWithRefunds,
    Refund,
    ResponseModel,
)

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_lambda import LambdaClient

_REFUND_TRIES = 3
"""How often other refunds of the same order may come in between, before the client is asked to retry."""

_CANCEL_REFUSED = {
    Cancellation.PAID: Problem(
        HTTPStatus.CONFLICT, "already-paid", "The order is paid. It can be refunded, not canceled."
    ),
    Cancellation.NEEDS_REVIEW: Problem(HTTPStatus.CONFLICT, "needs-review", "A person is reviewing this payment."),
}
"""Why an order is not canceled, by the payment service's answer or the order's own status."""

_DECIDED = frozenset({OrderStatus.PAID, OrderStatus.NEEDS_REVIEW, OrderStatus.CANCELED})
"""With these the payment service is not asked to cancel; an order that changes meanwhile has one of them."""

_TRY_AGAIN = "The result is unknown. Retry, with the same Idempotency-Key if the request had one."


class OrdersApi:
    """The routes over the Orders and OrderRefunds tables; `clock` gives the present time in UTC."""

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
        self.resolver.exception_handler([BotoCoreError, ClientError, CancellationUnknown])(self._unavailable)
        self.resolver.exception_handler(Exception)(self._failed)

    def place_order(self) -> Response[dict[str, Any]]:
        """Store the order, idempotent by its key; it is charged asynchronously."""
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
        self._counts("OrderPlaced" if is_new else "OrderReplayed")
        self._log("order placed" if is_new else "response replayed: order placed before", order)
        # A retry gets the response of the first try, whatever the order's status is by now.
        replayed = {} if is_new else {"Idempotent-Replayed": "true"}
        return self._accepted(order, {"Location": f"/orders/{order.order_id}", **replayed})

    def get_order(self, order_id: str) -> Response[dict[str, Any]]:
        """Show the order's status, its refunds, and the client secret while its customer has to act."""
        order = self._find(order_id)
        refunds = self._refunds.of_order(order_id) if order.status is OrderStatus.PAID else []
        view = _customers_view(order).model_dump(exclude_unset=True)
        if order.status is OrderStatus.REQUIRES_ACTION and (secret := self._client_secret(order)):
            view["client_secret"] = secret
        shown = OrderWithRefunds(**view, refunds=[Refund(**_refund(each)) for each in refunds])
        return self._json(HTTPStatus.OK, shown, {"X-Correlation-Id": order.correlation_id})

    def _client_secret(self, order: StoredOrder) -> str | None:
        """None if there is none, or the payment service does not answer: the order is worth showing all the same."""
        try:
            return self._payments.client_secret(order.event)
        except (BotoCoreError, ClientError, ClientSecretUnknown) as error:
            self._counts("ClientSecretUnavailable")
            self._logger.warning(
                "client secret unavailable: the payment service did not answer",
                extra={"order_id": order.order_id, "error": type(error).__name__},
            )
            return None

    def list_orders(self) -> Response[dict[str, Any]]:
        """A customer's orders, the newest first, page by page."""
        given = self.resolver.current_event.query_string_parameters or {}
        try:
            query = OrdersQuery.model_validate(given)
        except ValidationError as invalid:
            raise invalid_request(invalid, "The query does not ask for a customer's orders.") from None
        page = self._orders.of_customer(query.customer_id, after=query.after, limit=query.limit)
        for order_id in page.unreadable:
            self._counts("OrderUnreadable")
            self._counts("Alarm")
            self._logger.error("order left out of a list: its item breaks the schema", extra={"order_id": order_id})
        shown = OrderList(orders=[_customers_view(order) for order in page.orders], next_cursor=encoded(page.after))
        return self._json(HTTPStatus.OK, shown, {})

    def pay_again(self, order_id: str) -> Response[dict[str, Any]]:
        """Make another attempt, with another card, idempotent by its key; it is charged asynchronously."""
        key, body = self._idempotency_key(), self._body()
        self._refuse_card_numbers(key, body)
        self._require_id(order_id)
        try:
            request = PaymentRequest.model_validate_json(body)
        except ValidationError as invalid:
            raise invalid_request(invalid, "The body does not name a payment method.") from None
        order, is_new = self._attempted(order_id, request, key)
        self._counts("AttemptMade" if is_new else "AttemptReplayed")
        self._log("attempt made" if is_new else "response replayed: attempt made before", order)
        replayed = {} if is_new else {"Idempotent-Replayed": "true"}
        return self._accepted(order, replayed)

    def _attempted(self, order_id: str, request: PaymentRequest, key: str) -> tuple[StoredOrder, bool]:
        try:
            return self._orders.pay_again(order_id, request.payment_method, key, now=self._clock())
        except OrderStatusConflict as refused:
            detail = f"The order is {refused.order.status}: another attempt is possible only while PAYMENT_DECLINED."
            raise Problem(HTTPStatus.CONFLICT, "not-declined", detail) from None
        except AttemptsExhausted:
            detail = f"The order has had {ATTEMPTS_MAX} attempts. Place a new order."
            raise Problem(HTTPStatus.CONFLICT, "attempts-exhausted", detail) from None
        except PaymentMethodRefused:
            detail = "The card's issuer has advised not to try this payment method again. Use another one."
            raise Problem(HTTPStatus.CONFLICT, "payment-method-refused", detail) from None
        except KeyReused:
            detail = "This Idempotency-Key was used for another request. Use a new key for a new attempt."
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency-key-reused", detail) from None

    def cancel_order(self, order_id: str) -> Response[dict[str, Any]]:
        """Cancel the order unless it is paid. Idempotent; a cancellation that is not finished is asked for again."""
        order = self._find(order_id)
        if order.status not in _DECIDED:
            order = self._canceled(order)
        if order.status in (OrderStatus.PAID, OrderStatus.NEEDS_REVIEW):
            raise _CANCEL_REFUSED[Cancellation(order.status)]
        is_finished = order.status is OrderStatus.CANCELED
        return self._shown(HTTPStatus.OK if is_finished else HTTPStatus.ACCEPTED, order)

    def _canceled(self, order: StoredOrder) -> StoredOrder:
        """The order as the payment service's answer leaves it, or an outcome that was faster."""
        cancellation = self._payments.cancel(order.event)
        if cancellation in _CANCEL_REFUSED:
            raise _CANCEL_REFUSED[cancellation]
        try:
            canceled = self._orders.cancel(order.order_id, OrderStatus(cancellation), now=self._clock())
        except OrderStatusConflict as moved:
            return moved.order
        is_finished = canceled.status is OrderStatus.CANCELED
        self._counts("OrderCanceled" if is_finished else "OrderCanceling")
        self._log("order canceled" if is_finished else "cancellation stored: it finishes asynchronously", canceled)
        return canceled

    def refund_order(self, order_id: str) -> Response[dict[str, Any]]:
        """Reserve a part of what was paid, or all that is left, idempotent by its key; refunded asynchronously."""
        key, body = self._idempotency_key(), self._body()
        self._refuse_card_numbers(key, body)
        self._require_id(order_id)
        try:
            request = RefundRequest.model_validate_json(body or "{}")
        except ValidationError as invalid:
            raise invalid_request(invalid, "The body does not name an amount that can be refunded.") from None
        refund, is_new = self._requested(order_id, request, key)
        self._counts("RefundRequested" if is_new else "RefundReplayed")
        self._logger.info(
            "refund requested" if is_new else "response replayed: refund requested before",
            extra={"order_id": order_id, "refund_id": refund.refund_id, "correlation_id": refund.correlation_id},
        )
        # A retry gets the response of the first try, whatever the refund's status is by now.
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
            except OrderChanged:
                continue
            except OrderStatusConflict as refused:
                detail = f"The order is {refused.order.status}: only what is PAID can be refunded."
                raise Problem(HTTPStatus.CONFLICT, "not-paid", detail) from None
            except ExceedsRefundable:
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
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "try-again",
            "The order changes at this moment. Retry with the same Idempotency-Key.",
        )

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
        query = self.resolver.current_event.raw_query_string
        named = [text for pair in parse_qsl(query, keep_blank_values=True) for text in pair]
        if body_holds_card_number(body) or any(map(holds_card_number, (key, unquote(query), *named))):
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

    def _unavailable(self, error: Exception) -> Response[str]:
        self._logger.error(
            "unavailable: a table, or the payment service",
            extra={"error": type(error).__name__, "correlation_id": self._correlation_id()},
        )
        return Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "try-again",
            _TRY_AGAIN,
        ).response(self._correlation_id())

    def _failed(self, _: Exception) -> Response[str]:
        self._logger.exception("request failed", extra={"correlation_id": self._correlation_id()})
        return Problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "internal",
            "An internal error. Retrying with the same Idempotency-Key is safe.",
        ).response(self._correlation_id())

    def _accepted(self, order: StoredOrder, headers: dict[str, str]) -> Response[dict[str, Any]]:
        accepted = AcceptedOrder(
            order_id=order.order_id, status=OrderStatus.PENDING, amount=order.amount_minor, currency=order.currency
        )
        return self._json(HTTPStatus.ACCEPTED, accepted, {"X-Correlation-Id": order.correlation_id, **headers})

    def _shown(self, status: HTTPStatus, order: StoredOrder) -> Response[dict[str, Any]]:
        return self._json(status, _customers_view(order), {"X-Correlation-Id": order.correlation_id})

    def _json(self, status: HTTPStatus, response: ResponseModel, headers: dict[str, str]) -> Response[dict[str, Any]]:
        return Response(
            status_code=status.value,
            content_type=content_types.APPLICATION_JSON,
            body=response.model_dump(mode="json", exclude_unset=True),
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
    """The order as its customer sees it, without the client secret."""
    shown: dict[str, Any] = {
        "order_id": order.order_id,
        "status": order.status,
        "amount": order.amount_minor,
        "currency": order.currency,
        "placed_at": order.placed_at,
        "attempts": _attempts(order),
        "amount_refunded": order.refunded_minor,
    }
    if order.dispute_status:
        shown["dispute_status"] = order.dispute_status
    return Order(**shown)


def _attempts(order: StoredOrder) -> list[dict[str, Any]]:
    """The attempts that have ended, and the present one, which has the order's status unless another one has paid."""
    ended = [each for each in order.outcomes if each.status in (OrderStatus.PAYMENT_DECLINED, OrderStatus.PAID)]
    shown = [_attempt(each) for each in ended]
    if all(each.attempt != order.attempt for each in ended):
        is_superseded = order.paid_attempt not in (None, order.attempt)
        shown.append({"attempt": order.attempt, "status": OrderStatus.CANCELED if is_superseded else order.status})
    return shown


def _attempt(outcome: Outcome) -> dict[str, Any]:
    shown: dict[str, Any] = {"attempt": outcome.attempt, "status": outcome.status}
    if outcome.status is OrderStatus.PAYMENT_DECLINED:
        shown |= {"decline_code": outcome.decline_code, "message": message_for(outcome.decline_code)}
        shown |= {"advice_code": outcome.advice_code} if outcome.advice_code else {}
    return shown


def _refund(refund: StoredRefund) -> dict[str, Any]:
    return {
        "refund_id": refund.refund_id,
        "status": refund.status,
        "amount": refund.amount_minor,
        "requested_at": refund.requested_at,
    }


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.counts = Counts(Metrics())
        dynamodb, orders_table = boto3.client("dynamodb", config=client_config()), environment["ORDERS_TABLE"]
        self.api = OrdersApi(
            Orders(dynamodb, orders_table),
            Refunds(dynamodb, environment["ORDER_REFUNDS_TABLE"], orders_table),
            # As long as the payment service may take to cancel; a customer who only looks waits less.
            Payments(_lambda_client(22), _lambda_client(8), environment["PAYMENT_QUESTIONS_FUNCTION"]),
            Logger(),
            self.counts,
            clock=lambda: datetime.now(UTC),
        )


def _lambda_client(read_timeout_seconds: int) -> "LambdaClient":
    """One try: retrying is left to the client, which gets the same answer."""
    return boto3.client(
        "lambda",
        config=Config(connect_timeout=1, read_timeout=read_timeout_seconds, retries={"total_max_attempts": 1}),
    )


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> dict[str, Any]:
    """Answer one HTTP request."""
    return application.api.resolver.resolve(event, context)
