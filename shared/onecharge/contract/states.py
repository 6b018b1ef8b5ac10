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
    CANCELING = "CANCELING"
    """A cancellation is stored: the order becomes CANCELED, or PAID if the charge won the race."""
    CANCELED = "CANCELED"


class PaymentState(StrEnum):
    """The state of the current attempt to pay an order.

    PENDING ─► SUCCEEDED | DECLINED | REQUIRES_ACTION | CANCELED

    SUCCEEDED and CANCELED are final. What Stripe shows later wins: DECLINED may still become SUCCEEDED. Whether a
    worker has claimed the row is not a state but its lease.
    """

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    DECLINED = "DECLINED"
    REQUIRES_ACTION = "REQUIRES_ACTION"
    CANCELED = "CANCELED"
    """Stripe shows the order's PaymentIntent as canceled, or refuses to create one: it can never be charged."""
