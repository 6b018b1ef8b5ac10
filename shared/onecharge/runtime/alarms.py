"""The causes of the metric `Alarm`, which are its dimension in CloudWatch: why a person has to act.

Each cause has a CloudWatch alarm of its name in monitoring.yaml; docs/runbook.md says what it means and what fixes it.
Causes that ask for the same action are one.
"""

from enum import StrEnum


class Cause(StrEnum):
    """What a person has to act on."""

    STRIPE_ACCOUNT = "StripeAccount"
    STRIPE_KEY_UNREADABLE = "StripeKeyUnreadable"
    WEBHOOK_SILENT = "WebhookSilent"
    REQUEST_REFUSED = "RequestRefused"
    STRIPE_INCONCLUSIVE = "StripeInconclusive"
    MONEY_DIFFERS = "MoneyDiffers"
    ROW_LOST = "RowLost"
    PAID_AFTER_DECLINE = "PaidAfterDecline"
    NEEDS_REVIEW = "NeedsReview"
    REFUND_FAILED = "RefundFailed"
    BALANCE_TOO_LOW = "BalanceTooLow"
    HELD = "Held"
    OVERDUE = "Overdue"
    CHARGE_DISPUTED = "ChargeDisputed"
    RECONCILE_BEHIND = "ReconcileBehind"
    UNPUBLISHABLE = "Unpublishable"
    ITEM_UNREADABLE = "ItemUnreadable"
    MESSAGE_DIFFERS = "MessageDiffers"
    UNAUTHENTICATED = "Unauthenticated"
    UNEXPECTED_ERROR = "UnexpectedError"


class RowMissing(Exception):
    """What a message is about is not in its table, as after a loss: retried with an alarm that stops no deployment."""
