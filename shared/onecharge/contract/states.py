"""The stored states of orders and payments: named once, spelled alike in every service.

OrderStatus    in the order service's Orders table; its transitions: onecharge.orders.transitions
PaymentState   in the payment service's Payments table
"""

from enum import StrEnum


class OrderStatus(StrEnum):
    """The status of an order."""

    PENDING = "PENDING"
    PAID = "PAID"
    PAYMENT_DECLINED = "PAYMENT_DECLINED"
    REQUIRES_ACTION = "REQUIRES_ACTION"
    NEEDS_REVIEW = "NEEDS_REVIEW"
    CANCELING = "CANCELING"
    """A cancellation is stored: the order becomes CANCELED, or PAID if its charge was first, by itself."""
    CANCELED = "CANCELED"


class PaymentState(StrEnum):
    """The state of the current attempt to pay an order.

    PENDING ─► SUCCEEDED | DECLINED | REQUIRES_ACTION | NEEDS_REVIEW | CANCELED

    REQUIRES_ACTION waits for the customer and is not terminal. What Stripe shows later wins: DECLINED may still become
    SUCCEEDED. SUCCEEDED is never overwritten. Whether a worker has claimed the row is not a state but its lease.
    """

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    DECLINED = "DECLINED"
    REQUIRES_ACTION = "REQUIRES_ACTION"
    NEEDS_REVIEW = "NEEDS_REVIEW"
    CANCELED = "CANCELED"
    """Stripe confirmed that no PaymentIntent of the order can be charged any more."""
