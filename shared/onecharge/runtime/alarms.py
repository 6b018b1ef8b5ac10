"""Why a person has to act: the cause of the metric `Alarm`, which is its dimension in CloudWatch.

Each cause has a CloudWatch alarm of its name in monitoring.yaml, and an entry of its name in docs/runbook.md. Causes
that ask for the same action are one. tests/unit/test_monitoring.py compares the three.
"""

from enum import StrEnum


class Cause(StrEnum):
    """What a person has to act on."""

    STRIPE_ACCOUNT = "StripeAccount"
    """Stripe refuses our API key, or does not know the objects that our rows name: the key is another account's."""
    STRIPE_KEY_UNREADABLE = "StripeKeyUnreadable"
    """The secret with the API key cannot be read."""
    WEBHOOK_SILENT = "WebhookSilent"
    """Stripe has events that did not arrive here, or that were all refused."""
    REQUEST_REFUSED = "RequestRefused"
    """Stripe refuses a request of ours, or its idempotency key: our code or its configuration is at fault."""
    STRIPE_INCONCLUSIVE = "StripeInconclusive"
    """The objects that Stripe shows allow no decision."""
    MONEY_DIFFERS = "MoneyDiffers"
    """Stripe's charges differ from our rows."""
    ROW_LOST = "RowLost"
    """A paid PaymentIntent has no row."""
    PAID_AFTER_DECLINE = "PaidAfterDecline"
    """A payment succeeded after its attempt was declined."""
    NEEDS_REVIEW = "NeedsReview"
    """No rule can finish the order: a person decides."""
    REFUND_FAILED = "RefundFailed"
    """A refund failed, or was returned: the customer does not get the money."""
    BALANCE_TOO_LOW = "BalanceTooLow"
    """Stripe holds a refund until the account's balance is topped up."""
    OVERDUE = "Overdue"
    """An order or a refund has waited for its outcome for a day."""
    CHARGE_DISPUTED = "ChargeDisputed"
    """A customer disputes a charge."""
    RECONCILE_BEHIND = "ReconcileBehind"
    """Reconciliation is an hour behind, or gave up an event."""
    UNPUBLISHABLE = "Unpublishable"
    """An item cannot be published as an event."""
    NOT_INDEXED = "NotIndexed"
    """A waiting item is in no index: nothing would find it if its event were lost."""
    ITEM_UNREADABLE = "ItemUnreadable"
    """An item of the Orders table breaks the schema."""
    MESSAGE_DIFFERS = "MessageDiffers"
    """A message differs from the data that its row has frozen."""
    UNAUTHENTICATED = "Unauthenticated"
    """A request without verified claims reached orders_api: a route has no authorizer."""
    DUE_DOCUMENT = "DueDocument"
    """A due document is invalid, or was not ordered in time."""
    UNEXPECTED_ERROR = "UnexpectedError"
    """An error that the code does not expect."""
