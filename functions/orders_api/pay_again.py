"""POST /orders/{order_id}/payments: another attempt, with another payment method, after a decline.

One conditional write makes the attempt: of two at once one wins, and an idempotency key makes one attempt, for ever.
"""

from datetime import datetime
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict

from onecharge.contract.events import ATTEMPTS_MAX, PaymentMethodId
from onecharge.contract.states import OrderStatus
from onecharge.orders.ids import digest_of
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import KeyReused, OrderStatusConflict, OrderStore
from onecharge.orders.transitions import PAY_AGAIN
from onecharge.runtime.http_api import JsonResponse, Problem, Request, Route
from orders_api.http import BAD_BODY, REPLAYED, Dependencies, conflict, key_and_body, key_reused, parse
from orders_api.responses import AcceptedOrder, accepted_order

_KEY_IS_UNUSED = "attribute_not_exists(attempt_keys.#key)"
_ANOTHER_IS_LEFT = "attempt < :attempts_max"
_CARD_IS_ALLOWED = "NOT contains(refused_payment_methods, :payment_method)"


class PaymentRequest(BaseModel):
    """The body of POST /orders/{order_id}/payments: another card, after the one before was declined."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    payment_method: PaymentMethodId


class NotDeclined(Exception):
    """The order is not PAYMENT_DECLINED."""

    def __init__(self, status: OrderStatus) -> None:
        super().__init__(status)
        self.status = status


class AttemptsExhausted(Exception):
    """The order has had as many attempts as it can have."""


class PaymentMethodRefused(Exception):
    """The issuer of this card has advised not to try it again."""


def pay_again(request: Request, deps: Dependencies, order_id: str) -> JsonResponse:
    """Make another attempt, idempotent by its key; it is charged asynchronously."""
    key, body = key_and_body(request)
    wanted = parse(PaymentRequest, body, expected="The body does not name a payment method.")
    try:
        order, is_new = make_attempt(
            deps.orders, request.customer_id, order_id, wanted.payment_method, key, now=deps.clock()
        )
    except (NotDeclined, AttemptsExhausted, PaymentMethodRefused, KeyReused) as refused:
        raise _problem_of(refused) from None
    deps.count("AttemptMade" if is_new else "AttemptReplayed")
    deps.log("attempt made" if is_new else "response replayed: attempt made before", order)
    headers = {"X-Correlation-Id": order.correlation_id}
    return request.respond(HTTPStatus.ACCEPTED, accepted_order(order), headers | ({} if is_new else REPLAYED))


def make_attempt(
    orders: OrderStore, customer_id: str, order_id: str, payment_method: str, idempotency_key: str, *, now: datetime
) -> tuple[StoredOrder, bool]:
    """Make the next attempt, or find that an earlier try made it; returns also whether it is new.

    Raises:
        NoSuchOrder, NotDeclined, AttemptsExhausted, PaymentMethodRefused.
        KeyReused: an attempt was made with this key, for another payment method.
    """
    key, fingerprint = digest_of(idempotency_key), digest_of(payment_method)
    try:
        item = orders.move(
            order_id,
            PAY_AGAIN,
            at=now,
            of=customer_id,
            changes={
                "attempt": "attempt + :one",
                "payment_method": ":payment_method",
                "attempt_placed_at": ":now",
                "attempt_keys.#key": ":fingerprint",
            },
            names={"#key": key},
            values={
                ":one": 1,
                ":payment_method": payment_method,
                ":now": now.isoformat(),
                ":fingerprint": fingerprint,
                ":attempts_max": ATTEMPTS_MAX,
            },
            conditions=[_KEY_IS_UNUSED, _ANOTHER_IS_LEFT, _CARD_IS_ALLOWED],
        )
    except OrderStatusConflict as conflict:
        order = conflict.order
        _require_replay(order, key, fingerprint)
        return order, False
    return StoredOrder.from_item(item), True


def _require_replay(order: StoredOrder, key: str, fingerprint: str) -> None:
    """The key has made this attempt before; otherwise raises which part of the condition refused the new key."""
    used_for = order.attempt_keys.get(key)
    if used_for == fingerprint:
        return
    if used_for is not None:
        raise KeyReused from None
    if order.status is not OrderStatus.PAYMENT_DECLINED:
        raise NotDeclined(order.status) from None
    if order.attempt >= ATTEMPTS_MAX:
        raise AttemptsExhausted from None
    raise PaymentMethodRefused from None


def _problem_of(refused: Exception) -> Problem:
    match refused:
        case NotDeclined(status=status):
            detail = f"The order is {status}: another attempt is possible only while PAYMENT_DECLINED."
            return conflict("not-declined", detail)
        case AttemptsExhausted():
            return conflict("attempts-exhausted", f"The order has had {ATTEMPTS_MAX} attempts. Place a new order.")
        case PaymentMethodRefused():
            detail = "The card's issuer has advised not to try this payment method again. Use another one."
            return conflict("payment-method-refused", detail)
        case _:
            return key_reused("This Idempotency-Key was used for another request. Use a new key for a new attempt.")


ROUTE = Route(
    pay_again,
    "POST",
    "/orders/{order_id}/payments",
    "Make another attempt to pay a declined order, with another card. Idempotent by Idempotency-Key: a key that has "
    "made an attempt never makes another.",
    HTTPStatus.ACCEPTED,
    AcceptedOrder,
    {
        HTTPStatus.BAD_REQUEST: BAD_BODY,
        HTTPStatus.NOT_FOUND: ("not-found",),
        HTTPStatus.CONFLICT: ("not-declined", "attempts-exhausted", "payment-method-refused"),
        HTTPStatus.UNPROCESSABLE_ENTITY: ("idempotency-key-reused",),
    },
    body=PaymentRequest,
    is_idempotent_by_key=True,
)
