"""The states that are stored: named once, and spelled out in full wherever they are read."""

from enum import StrEnum


class ChargeState(StrEnum):
    """Where one attempt to charge an order stands, in the Charges table.

    CLAIMED ─► SUCCEEDED | DECLINED | REQUIRES_ACTION | NEEDS_REVIEW | CANCELLED

    All but CLAIMED are settled and never change again, except REQUIRES_ACTION: what the customer then does at
    their bank decides it, and Stripe tells.
    """

    CLAIMED = "CLAIMED"
    SUCCEEDED = "SUCCEEDED"
    DECLINED = "DECLINED"
    REQUIRES_ACTION = "REQUIRES_ACTION"
    NEEDS_REVIEW = "NEEDS_REVIEW"
    CANCELLED = "CANCELLED"
    """The order was cancelled before it was charged: this attempt never will be."""


class RefundState(StrEnum):
    """Where one refund stands at Stripe, in the RefundLedger table.

    CLAIMED ─► SUCCEEDED | FAILED | NEEDS_REVIEW

    All but CLAIMED are settled and never change again.
    """

    CLAIMED = "CLAIMED"
    SUCCEEDED = "SUCCEEDED"
    """Stripe has accepted it: the money is on its way back."""
    FAILED = "FAILED"
    """Stripe has refused it: no money has moved."""
    NEEDS_REVIEW = "NEEDS_REVIEW"


class RefundStatus(StrEnum):
    """Where a refund stands for the order's customer, in the Refunds table."""

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    """It was not made, and its amount can be refunded again."""
    IN_REVIEW = "IN_REVIEW"


class OrderStatus(StrEnum):
    """Where an order stands for its customer, in the Orders table."""

    PENDING = "PENDING"
    PAID = "PAID"
    PAYMENT_DECLINED = "PAYMENT_DECLINED"
    ACTION_REQUIRED = "ACTION_REQUIRED"
    IN_REVIEW = "IN_REVIEW"
    CANCELLED = "CANCELLED"
