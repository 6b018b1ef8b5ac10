"""The states that are stored: named once, and spelled alike in every service."""

from enum import StrEnum


class PaymentState(StrEnum):
    """Where the present attempt to pay an order stands, in the Payments table.

    PENDING ─► SUCCEEDED | DECLINED | REQUIRES_ACTION | NEEDS_REVIEW | CANCELED

    REQUIRES_ACTION waits for the customer, and so is not final. What Stripe says later wins: DECLINED may still become
    SUCCEEDED. SUCCEEDED is never overwritten. Whether a worker holds the row is not a state but its lease.
    """

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    DECLINED = "DECLINED"
    REQUIRES_ACTION = "REQUIRES_ACTION"
    NEEDS_REVIEW = "NEEDS_REVIEW"
    CANCELED = "CANCELED"
    """Stripe has said so: no PaymentIntent of the order can be charged any more."""


class RefundState(StrEnum):
    """Where one refund stands at Stripe, in the Refunds table of the payment service.

    PENDING ─► SUCCEEDED | FAILED | NEEDS_REVIEW        SUCCEEDED ─► FAILED, when the bank returns it
    """

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    """Stripe has accepted it: the money is on its way back."""
    FAILED = "FAILED"
    """No money has moved, or it came back: the amount can be refunded again."""
    NEEDS_REVIEW = "NEEDS_REVIEW"


class RefundStatus(StrEnum):
    """Where a refund stands for the order's customer, in the OrderRefunds table of the order service."""

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    """No money was given back, and the amount can be refunded again."""
    NEEDS_REVIEW = "NEEDS_REVIEW"


class OrderStatus(StrEnum):
    """Where an order stands for its customer, in the Orders table."""

    PENDING = "PENDING"
    PAID = "PAID"
    PAYMENT_DECLINED = "PAYMENT_DECLINED"
    REQUIRES_ACTION = "REQUIRES_ACTION"
    NEEDS_REVIEW = "NEEDS_REVIEW"
    CANCELING = "CANCELING"
    """A cancellation is taken: nothing is confirmed from now on, and it ends as CANCELED or PAID by itself."""
    CANCELED = "CANCELED"
