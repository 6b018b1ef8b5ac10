"""POST /orders/{order_id}/payments: another attempt, with another payment method, after a decline.

One conditional write makes the attempt. Of two concurrent requests one wins, and an idempotency key never makes a
second attempt.
"""

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from onecharge.contract.events import PaymentMethodId
from onecharge.contract.states import OrderStatus
from onecharge.orders.ids import digest_of, fingerprint_of
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStatusConflict, OrderStore
from onecharge.orders.transitions import PAY_AGAIN
from onecharge.runtime.http_api import JsonResponse, Problem, Request
from orders_api.http import Dependencies, accepted, conflict, key_and_body, key_reused
from orders_api.responses import accepted_order

ATTEMPTS_MAX = 8
"""Stripe advises no more, and cancels a PaymentIntent that is confirmed too often. The contract allows 100."""


class PaymentRequest(BaseModel):
    """The body of POST /orders/{order_id}/payments: another card, after the one before was declined."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    payment_method: PaymentMethodId


def pay_again(request: Request, deps: Dependencies, order_id: str) -> JsonResponse:
    """Pay a declined order with another card, idempotent by Idempotency-Key: a key never makes two attempts."""
    key, wanted = key_and_body(request, PaymentRequest, expected="The body does not name a payment method.")
    order, is_new = make_attempt(deps.orders, request.subject, order_id, wanted, key, now=deps.clock())
    deps.log("attempt made" if is_new else "response replayed: attempt made before", order)
    return accepted(accepted_order(order), order_id, order.correlation_id, is_new=is_new)


def make_attempt(
    orders: OrderStore, customer_id: str, order_id: str, wanted: PaymentRequest, idempotency_key: str, *, now: datetime
) -> tuple[StoredOrder, bool]:
    """Make the next attempt, or find that an earlier try made it; returns also whether it is new.

    Raises NoSuchOrder, and Problem if the order does not allow the attempt.
    """
    key, fingerprint = digest_of(idempotency_key), fingerprint_of(wanted)
    try:
        item = orders.move(
            order_id,
            PAY_AGAIN,
            at=now,
            of=customer_id,
            changes={
                "attempt": "attempt + :one",
                "payment_method": ":payment_method",
                "attempt_keys.#key": ":fingerprint",
            },
            names={"#key": key},
            values={
                ":one": 1,
                ":payment_method": wanted.payment_method,
                ":fingerprint": fingerprint,
                ":attempts_max": ATTEMPTS_MAX,
            },
            conditions=["attribute_not_exists(attempt_keys.#key)", "attempt < :attempts_max"],
        )
    except OrderStatusConflict as refused:
        if refused.order.attempt_keys.get(key) != fingerprint:
            raise _why_refused(refused.order, key) from None
        return refused.order, False
    return StoredOrder.from_item(item), True


def _why_refused(order: StoredOrder, key: str) -> Problem:
    """The problem that says which part of the write's condition refused the attempt."""
    if key in order.attempt_keys:
        return key_reused("This Idempotency-Key was used for another request. Use a new key for a new attempt.")
    if order.status is not OrderStatus.PAYMENT_DECLINED:
        detail = f"The order is {order.status}: another attempt is possible only while PAYMENT_DECLINED."
        return conflict("not-declined", detail)
    return conflict("attempts-exhausted", f"No attempt follows the {order.attempt} there were. Place a new order.")
