"""POST /orders: an order starts here.

    request ─► validate ─► price ─► one conditional write ─► 202 PENDING
                           └─ the table's stream ─► publish_events ─► SNS ─► charge_order

The order's id derives from the shop, the customer and the idempotency key (onecharge.orders.ids), so a retry finds the
order that the first try stored, at the prices of that time. The function does nothing else: the stored item is the
outbox (onecharge.orders.schema).
"""

from http import HTTPStatus
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from onecharge.contract.events import PaymentMethodId
from onecharge.contract.money import MAX_AMOUNT_MINOR, AmountMinor, Currency, as_money, require_chargeable
from onecharge.orders.ids import digest_of, fingerprint_of, order_id_of
from onecharge.orders.schema import OrderedItem, StoredOrder, new_order_item
from onecharge.runtime.http_api import JsonResponse, Problem, Request
from orders_api.http import Dependencies, accepted, bad_request, key_and_body, key_reused
from orders_api.prices import NotForSale, OrderLine, PriceOf
from orders_api.responses import accepted_order

_EXPECTED = "The body does not describe an order that can be charged."


class OrderRequest(BaseModel):
    """The body of POST /orders. What it costs is not the client's to say (orders_api.prices)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    currency: Currency
    payment_method: PaymentMethodId
    items: Annotated[list[OrderLine], Field(min_length=1, max_length=100)]
    # Excluded from the fingerprint: it says what was shown, not what is bought. After a 409 the client sends another
    # amount with the same key, which has to find the order if an earlier try was stored meanwhile.
    amount: AmountMinor | None = Field(
        default=None,
        exclude=True,
        description="What the customer was shown, in the minor unit of the currency. The order is refused if it "
        "costs another amount by now.",
    )


def place_order(request: Request, deps: Dependencies) -> JsonResponse:
    """Create an order, idempotent by Idempotency-Key. It is charged asynchronously."""
    key, wanted = key_and_body(request, OrderRequest, expected=_EXPECTED)
    order, is_new = store_order(request, deps, wanted, key)
    deps.log("order placed" if is_new else "response replayed: order placed before", order)
    return accepted(accepted_order(order), order.order_id, order.correlation_id, is_new=is_new)


def store_order(request: Request, deps: Dependencies, wanted: OrderRequest, key: str) -> tuple[StoredOrder, bool]:
    """Store the order, or find the one that an earlier try stored; returns also whether it is new.

    Raises Problem if it cannot be sold or charged, or if the customer used this key for an order with another body.
    """
    order_id, fingerprint = order_id_of(deps.shop, request.subject, key), fingerprint_of(wanted)
    try:
        items = priced(wanted, deps.price_of)
    except Exception:
        # A retry keeps the prices of its first try, and needs none: the list may have changed since then.
        earlier = deps.orders.find(order_id)
        if earlier is None:
            raise
    else:
        item = new_order_item(
            order_id,
            deps.clock(),
            customer_id=request.subject,
            amount_minor=sum(each.amount_minor for each in items),
            currency=wanted.currency,
            payment_method=wanted.payment_method,
            items=[each.model_dump() for each in items],
            fingerprint=fingerprint,
            attempt_keys={digest_of(key): fingerprint},
            correlation_id=request.correlation_id,
        )
        # One conditional write: attribute_not_exists(order_id).
        earlier = deps.orders.put_if_new(item)
        if earlier is None:
            return StoredOrder.from_item(item), True
    if earlier.fingerprint != fingerprint:
        raise key_reused("This Idempotency-Key was used for an order with another body. Use a new key for a new order.")
    return earlier, False


# ---------------------------------------------------------------- what it costs


def priced(wanted: OrderRequest, price_of: PriceOf) -> list[OrderedItem]:
    """The items at their present prices. Raises Problem if these cannot be sold, charged, or are not what was shown."""
    try:
        unit_amounts = price_of(wanted.items, wanted.currency)
    except NotForSale as missing:
        errors = [(f"/items/{index}/sku", reason) for index, reason in missing.reasons.items()]
        raise bad_request("invalid-request", _EXPECTED, errors) from None
    items = [
        OrderedItem(sku=line.sku, quantity=line.quantity, unit_amount=unit_amount)
        for line, unit_amount in zip(wanted.items, unit_amounts, strict=True)
    ]
    amount_minor = sum(item.amount_minor for item in items)
    try:
        if amount_minor > MAX_AMOUNT_MINOR:
            raise PydanticCustomError("amount_too_large", "The order's amount is larger than can be charged at once")
        require_chargeable(amount_minor, wanted.currency)
    except PydanticCustomError as refused:
        raise bad_request("invalid-request", _EXPECTED, [("/items", refused.message())]) from None
    if wanted.amount not in (None, amount_minor):
        present = as_money(amount_minor, wanted.currency)
        # An earlier try, priced before the list changed, may still be on its way: with another key it would be a second
        # order, with the same one the next request finds it.
        detail = (
            f"The order costs {present} now, which is not the amount in the request. Ask the customer again, and send "
            "their answer with the same Idempotency-Key."
        )
        raise Problem(HTTPStatus.CONFLICT, "amount-differs", detail, members={"amount": amount_minor})
    return items
