"""What the routes share: what they work with, how they read a request's body, and the problems of it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from pydantic import BaseModel, ValidationError

from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import NoSuchOrder, OrderStore
from onecharge.runtime.http_api import Problem, Request
from onecharge.runtime.metrics import Counts
from onecharge.runtime.redaction import redacted
from orders_api.prices import PriceOf, Prices

KEY_LENGTH_MAX = 255
"""As many characters as Stripe allows for its own keys."""
IDEMPOTENCY_KEY_PATTERN = rf"^[!-+\--~]{{1,{KEY_LENGTH_MAX}}}$"
"""Visible ASCII without spaces and commas. API Gateway joins repeated headers by a comma (payload format 2.0): as a
key, `k,k` would be another order than `k`, and another charge."""

STAFF_SCOPE = "onecharge/refund"
"""The scope of the staff's access tokens: they read any customer's order, and refund it."""

REPLAYED = {"Idempotent-Replayed": "true"}
"""The header of a response to a retry: it is the response of the first request with this key."""

BODY_LENGTH_MAX = 128 * 1024
"""The most characters of a body. The longest order, 100 lines in JSON's longest spelling, has half of it. API Gateway
accepts 6 MB, which take half a minute to refuse field by field."""

BAD_BODY = (
    "idempotency-key-missing",
    "idempotency-key-invalid",
    "body-too-long",
    "invalid-json",
    "invalid-request",
)
"""The problems of a route that takes a body and an idempotency key."""


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
    count: Counts
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


def key_and_body(request: Request) -> tuple[str, str]:
    """The idempotency key, and the body as text. Raises Problem: no such key, or a body that is not UTF-8."""
    return _idempotency_key(request.event), _body(request.event)


def _idempotency_key(event: APIGatewayProxyEventV2) -> str:
    key = event.headers.get("idempotency-key") or ""
    if re.fullmatch(IDEMPOTENCY_KEY_PATTERN, key):
        return key
    if not key:
        detail = (
            f"The header Idempotency-Key is required: 1 to {KEY_LENGTH_MAX} visible ASCII characters without "
            "commas, the same for every retry of one request and new for each new request."
        )
        raise Problem(HTTPStatus.BAD_REQUEST, "idempotency-key-missing", detail)
    if len(key) > KEY_LENGTH_MAX:
        reason = f"has {len(key)} characters: at most {KEY_LENGTH_MAX} are allowed"
    elif " " in key:
        reason = "contains a space: only visible ASCII characters are allowed"
    elif "," in key:
        reason = "contains a comma: no key has one, but a header that is sent twice arrives with one"
    else:
        reason = "contains a character that is not visible ASCII"
    raise Problem(HTTPStatus.BAD_REQUEST, "idempotency-key-invalid", f"The header Idempotency-Key {reason}.")


def _body(event: APIGatewayProxyEventV2) -> str:
    if len(event.body or "") > BODY_LENGTH_MAX:
        detail = f"The body is longer than {BODY_LENGTH_MAX} characters."
        raise Problem(HTTPStatus.BAD_REQUEST, "body-too-long", detail)
    try:
        return event.decoded_body or ""
    except ValueError:
        raise Problem(HTTPStatus.BAD_REQUEST, "invalid-json", "The body is not UTF-8 text.") from None


def parse[Body: BaseModel](model: type[Body], body: str, *, expected: str) -> Body:
    """Parse the body. Raises Problem with the detail `expected`, which says what the body should be."""
    try:
        return model.model_validate_json(body)
    except ValidationError as invalid:
        raise invalid_request(invalid, expected) from None


def invalid_request(invalid: ValidationError, detail: str) -> Problem:
    """The problem that says where and how the request breaks the contract (JSON Pointers, RFC 6901).

    It repeats nothing of the request but the names of fields.
    """
    errors = invalid.errors(include_input=False, include_url=False, include_context=False)
    if errors[0]["type"] == "json_invalid":
        return Problem(HTTPStatus.BAD_REQUEST, "invalid-json", "The body is not valid JSON.")
    return Problem(
        HTTPStatus.BAD_REQUEST,
        "invalid-request",
        detail,
        [_invalid_part(error["type"], error["loc"], error["msg"]) for error in errors[:20]],
    )


def _invalid_part(error_type: str, location: tuple[int | str, ...], message: str) -> dict[str, str]:
    if error_type == "extra_forbidden":
        message = "There is no such field"
        # An unknown name is the client's own text: one that is not like a field's is not repeated.
        if not re.fullmatch(_FIELD_NAME, name := str(location[-1])) or redacted(name) != name:
            location = location[:-1]
    return {"pointer": "".join(f"/{part}" for part in location), "detail": message}


_FIELD_NAME = r"[A-Za-z][A-Za-z0-9_]{0,39}"


def invalid_fields(details: Mapping[str, str]) -> Problem:
    """The problem of fields that are well-formed, but cannot be ordered: a detail for each JSON Pointer."""
    errors = [{"pointer": pointer, "detail": detail} for pointer, detail in details.items()]
    detail = "The body does not describe an order that can be charged."
    return Problem(HTTPStatus.BAD_REQUEST, "invalid-request", detail, errors[:20])


def conflict(kind: str, detail: str) -> Problem:
    """409: the order's status does not allow the request."""
    return Problem(HTTPStatus.CONFLICT, kind, detail)


def key_reused(detail: str) -> Problem:
    """422: the idempotency key was used for another request."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency-key-reused", detail)
