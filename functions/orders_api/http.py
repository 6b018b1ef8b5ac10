"""What the routes share: their dependencies, how they read a request's body, and their problems."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from aws_lambda_powertools import Logger
from pydantic import BaseModel, ValidationError

from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import NoSuchOrder, OrderStore
from onecharge.runtime.http_api import JsonResponse, Problem, Request, ResponseModel, respond
from onecharge.runtime.redaction import redacted
from orders_api.prices import PriceOf, Prices

IDEMPOTENCY_KEY_PATTERN = r"^[!-+\--~]{1,255}$"
"""Visible ASCII without commas, as long as Stripe's own keys. API Gateway joins repeated headers by a comma (payload
format 2.0): as a key, `k,k` would be another order than `k`, and another charge."""

STAFF_SCOPE = "onecharge/refund"
"""The scope of the staff's access tokens: they read any customer's order, and refund it."""

BODY_LENGTH_MAX = 128 * 1024
"""The most characters of a body. The longest order, 100 lines in JSON's longest spelling, has half of it. API Gateway
accepts 6 MB, which take half a minute to refuse field by field."""


@dataclass(frozen=True)
class Dependencies:
    """What the routes work with; app.py puts it together. `clock` gives the present time in UTC."""

    orders: OrderStore
    refunds: OrderRefundStore
    shop: str
    """In every order's id (onecharge.orders.ids)."""
    prices: Prices
    price_of: PriceOf
    logger: Logger
    count: Callable[[str], None]
    clock: Callable[[], datetime]

    def find_order(self, order_id: str, *, of: str | None = None) -> StoredOrder:
        """The order as it is. Raises NoSuchOrder; with `of`, a customer's id, also if it is another customer's."""
        order = self.orders.find(order_id, of=of)
        if order is None:
            raise NoSuchOrder
        return order

    def log(self, message: str, order: StoredOrder, **about: str) -> None:
        ids = {"order_id": order.order_id, "attempt": order.attempt, "correlation_id": order.correlation_id}
        self.logger.info(message, extra={**ids, **about})


def accepted(shown: ResponseModel, order_id: str, correlation_id: str, *, is_new: bool) -> JsonResponse:
    """202. To a retry it is the response of the first request with this key, and says so."""
    headers = {"Location": f"/orders/{order_id}", **({} if is_new else {"Idempotent-Replayed": "true"})}
    return respond(HTTPStatus.ACCEPTED, shown, correlation_id, headers)


def key_and_body[Body: BaseModel](request: Request, model: type[Body], *, expected: str) -> tuple[str, Body]:
    """The idempotency key, and the body. Raises Problem; its detail `expected` says what the body should be."""
    key = request.event.headers.get("idempotency-key") or ""
    if not re.fullmatch(IDEMPOTENCY_KEY_PATTERN, key):
        detail = (
            "The header Idempotency-Key is required: 1 to 255 visible ASCII characters without spaces and commas, the "
            "same for every retry of one request and new for each new request. A header that is sent twice arrives "
            "with a comma."
        )
        raise bad_request(f"idempotency-key-{'invalid' if key else 'missing'}", detail)
    if len(request.event.body or "") > BODY_LENGTH_MAX:
        raise bad_request("body-too-long", f"The body is longer than {BODY_LENGTH_MAX} characters.")
    try:
        return key, model.model_validate_json(request.event.decoded_body or "")
    except ValidationError as invalid:
        raise invalid_request(invalid, expected) from None
    except ValueError:  # The bytes in Base64 are not UTF-8.
        raise bad_request("invalid-json", "The body is not UTF-8 text.") from None


def invalid_request(invalid: ValidationError, detail: str) -> Problem:
    """The problem that says where and how the request breaks the contract.

    It repeats nothing of the request but the names of fields.
    """
    errors = invalid.errors(include_input=False, include_url=False, include_context=False)
    if errors[0]["type"] == "json_invalid":
        return bad_request("invalid-json", "The body is not valid JSON.")
    return bad_request("invalid-request", detail, (_error(each["type"], each["loc"], each["msg"]) for each in errors))


def _error(kind: str, location: tuple[int | str, ...], message: str) -> tuple[str, str]:
    if kind == "extra_forbidden":
        message, name = "There is no such field", str(location[-1])
        # An unknown name is the client's own text: one that is not like a field's is not repeated.
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,39}", name) or redacted(name) != name:
            location = location[:-1]
    return "".join(f"/{part}" for part in location), message


def bad_request(kind: str, detail: str, errors: Iterable[tuple[str, str]] = ()) -> Problem:
    """400; the first 20 errors, each a JSON Pointer and what is wrong there."""
    listed = [{"pointer": pointer, "detail": message} for pointer, message in errors]
    return Problem(HTTPStatus.BAD_REQUEST, kind, detail, listed[:20])


def conflict(kind: str, detail: str) -> Problem:
    """409: the order's status does not allow the request."""
    return Problem(HTTPStatus.CONFLICT, kind, detail)


def key_reused(detail: str) -> Problem:
    """422: the idempotency key was used for another request."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency-key-reused", detail)
