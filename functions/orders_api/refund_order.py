"""POST /orders/{order_id}/refunds: refund a part of what was paid, or all that is left."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from onecharge.contract.money import AmountMinor, require_chargeable
from onecharge.contract.refund_events import RefundState, is_refundable_despite
from onecharge.contract.states import OrderStatus
from onecharge.orders.ids import digest_of, fingerprint_of
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.refund_store import left_minor
from onecharge.orders.schema import REFUNDABLE_SECONDS, StoredOrder
from onecharge.runtime.http_api import JsonResponse, Request, ResponseModel, try_again
from orders_api.http import STAFF_SCOPE, Dependencies, accepted, bad_request, conflict, key_and_body, key_reused
from orders_api.responses import Timestamp

_TRIES = 3
"""How often other requests may change the order meanwhile, before the client is asked to retry."""


class RefundRequest(BaseModel):
    """The body of POST /orders/{order_id}/refunds. The amount is an integer, in the order's minor unit."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    amount: AmountMinor | None = None
    """None refunds all that is left."""
    reason: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")] | None = None
    """Why, in one line, for the staff: `explain` and the console show it, and no customer does."""


class RefundView(ResponseModel):
    """A refund of an order, whole or in part."""

    refund_id: str
    status: RefundState
    amount: int = Field(description="In the minor unit of the order's currency.")
    requested_at: Timestamp


Refunds = Annotated[list[RefundView], Field(description="The oldest first.")]


def refund_order(request: Request, deps: Dependencies, order_id: str) -> JsonResponse:
    """Refund a part of what was paid, or all that is left, idempotent by Idempotency-Key: any order, by the staff."""
    request.require_scope(STAFF_SCOPE)
    expected = "The body does not name an amount that can be refunded."
    key, wanted = key_and_body(request, RefundRequest, expected=expected)
    refund, is_new = request_refund(request, deps, order_id, wanted, key)
    about = {"order_id": order_id, "refund_id": refund.refund_id, "requested_by": request.subject}
    deps.logger.info(
        "refund requested" if is_new else "response replayed: refund requested before",
        extra={**about, "correlation_id": refund.correlation_id},
    )
    # A retry gets the response of the first try, whatever the refund's status is by now.
    first = _view(refund).model_copy(update={"status": RefundState.PENDING})
    return accepted(first, order_id, refund.correlation_id, is_new=is_new)


def request_refund(
    request: Request, deps: Dependencies, order_id: str, wanted: RefundRequest, key: str
) -> tuple[StoredRefund, bool]:
    """Store the refund and so reserve its amount, or find that an earlier try did; returns also whether it is new.

    Raises NoSuchOrder, and Problem if it cannot be refunded.
    """
    refund_id, fingerprint, now = f"rfd_{digest_of(order_id, key)}", fingerprint_of(wanted), deps.clock()
    for _ in range(_TRIES):
        order = deps.find_order(order_id)
        refunds = deps.refunds.of_order(order_id)
        if earlier := next((each for each in refunds if each.refund_id == refund_id), None):
            if earlier.fingerprint == fingerprint:
                return earlier, False
            raise key_reused("This Idempotency-Key was used for another refund. Use a new key for a new refund.")
        refund = StoredRefund(
            order_id=order_id,
            refund_id=refund_id,
            status=RefundState.PENDING,
            attempt=order.paid_attempt or order.attempt,
            amount_minor=_refundable_minor(order, left_minor(order, refunds), wanted.amount, now),
            currency=order.currency,
            fingerprint=fingerprint,
            requested_at=now.isoformat(),
            correlation_id=request.correlation_id,
            requested_by=request.subject,
            reason=wanted.reason,
        )
        if deps.refunds.store(refund, order):
            return refund, True
        # The order, or this very refund, was written meanwhile: read both again.
    raise try_again("The order is being changed. Retry with the same Idempotency-Key.")


def _refundable_minor(order: StoredOrder, left: int, amount_minor: int | None, now: datetime) -> int:
    """Returns the amount, or all that is left if it is None. Raises Problem if it cannot be refunded."""
    if order.status is not OrderStatus.PAID:
        raise conflict("not-paid", f"The order is {order.status}: only what is PAID can be refunded.")
    if now >= datetime.fromisoformat(order.paid_at or order.placed_at) + timedelta(seconds=REFUNDABLE_SECONDS):
        raise conflict("paid-too-long-ago", "The payment is too old for this API. Refund it at Stripe, by hand.")
    if order.dispute_status and not is_refundable_despite(order.dispute_status):
        raise conflict("disputed", f"The payment is disputed ({order.dispute_status}): the dispute decides.")
    wanted_minor = left if amount_minor is None else amount_minor
    if not 0 < wanted_minor <= left:
        raise conflict("more-than-is-left", "The amount is more than is left of what was paid.")
    try:
        require_chargeable(wanted_minor, order.currency)
    except PydanticCustomError as refused:
        raise bad_request("invalid-request", refused.message()) from None
    return wanted_minor


def refunds_of(order: StoredOrder, deps: Dependencies) -> list[RefundView]:
    """The refunds of the order, the oldest first. Only a paid order has any."""
    refunds = deps.refunds.of_order(order.order_id) if order.status is OrderStatus.PAID else []
    return [_view(refund) for refund in refunds]


def _view(refund: StoredRefund) -> RefundView:
    alike = refund.model_dump(include={"refund_id", "status", "requested_at"})
    return RefundView(amount=refund.amount_minor, **alike)
