"""What may be found about an order: the table of causes, each with what fixes it. diagnosis.py says which apply."""

from dataclasses import dataclass
from enum import Enum, auto

_REPUBLISH = "aws lambda invoke --function-name $(RepublishFunction) /dev/stdout"
_RECONCILE = "aws lambda invoke --function-name $(ReconcileFunction) /dev/stdout"
_RECONCILES = f"nothing is needed; if it cannot wait: {_RECONCILE}"
_GIVE_BACK = "notify the customer; request another refund of the amount through the API, or pay it back in another way"

EMIT_AGAIN = "python -m ops publish {order_id} --yes"


class Severity(Enum):
    """Whether a person has to act."""

    FINE = auto()
    """Nothing is left to do."""
    WAITS = auto()
    """It ends by itself, at the latest at `until`."""
    BROKEN = auto()
    """A person has to act, or has to know."""


class Diagnosis(Enum):
    """What is found, in one sentence, and what fixes it. The names are stable, for scripts.

    In a command `$(RepublishFunction)` is a resource of the stack, `{order_id}` a value of the finding.
    """

    def __init__(self, says: str, fix: str = "") -> None:
        self.says, self.fix = says, fix

    ENDED = ("nothing is left to do",)
    DECLINED = ("the card was declined: another card can be tried",)
    NOT_CLAIMED_YET = ("the order was stored a moment ago: its message is on its way",)
    IN_PROGRESS = ("a worker has the lease of the payment's row",)
    BACKING_OFF = ("the attempt is not finished: its message waits for its next delivery",)
    AUTHENTICATION_AWAITED = ("the customer has to authenticate (3-D Secure)",)
    OUTCOME_ON_ITS_WAY = ("the payment has an outcome, which is on its way to the order",)
    CANCELING = ("a cancellation is requested: the next delivery of its message finishes it",)

    NO_SUCH_ORDER = ("neither the tables nor Stripe know this order", "check the id, --stack and --region")
    ORDER_LOST = (
        "there is a payment, and no order: the item was lost, as in a restore",
        "restore the order's item from a backup of the Orders table (docs/runbook.md)",
    )
    HELD = (
        "its PaymentIntent may not be created any more: Stripe may have forgotten the order's key",
        "python -m ops release {order_id} --yes",
    )
    OTHER_ORDER = (
        "amount or currency of order and payment differ: the order was lost or put back, and priced again",
        "if it is unpaid, cancel it through the API; if it is paid, see docs/runbook.md#moneydiffers",
    )
    ROW_OLDER = (
        "the payment's row is older than what the order has seen of it: it was restored",
        "python -m ops restore outcomes --since TIME --yes, with the time that was restored",
    )
    ORDER_UNREADABLE = (
        "the order's item breaks its schema: it cannot be published",
        "correct the item: republish reports it in every round, and publishes it once it is valid",
    )
    STRIPE_KEY_REFUSED = (
        "Stripe refuses the API key",
        "store the right key in the stack's Stripe secret: the functions notice it within five minutes",
    )
    PAYMENT_INTENT_UNKNOWN = (
        "Stripe has no such PaymentIntent as the row names",
        "store the right key; if a wrong one made it: python -m ops release {order_id} --forget --yes",
    )
    STRIPE_UNAVAILABLE = ("Stripe does not answer", "wait: payments are retried, none fails; https://status.stripe.com")
    LOOKUP_INCOMPLETE = (
        "Stripe has more PaymentIntents of the order's first day than were read",
        "python -m ops release {order_id} reads them all",
    )
    DEAD_LETTER = (
        "a message of the order is in a DLQ",
        "once the cause is gone: python -m ops dlq redrive --message-id {message_id} --yes",
    )
    NOT_READ = (
        "no function reads a stream or queue: its event source mapping is disabled",
        "aws lambda update-event-source-mapping --uuid {uuid} --enabled",
    )
    NOT_CLAIMED = ("the order was stored, and no worker has claimed it", _REPUBLISH)
    ROW_LOST = ("the payment's row was lost: Stripe knows the order's PaymentIntent", _RECONCILES)
    ABANDONED = ("the attempt is unfinished, and no message claims it any more", _REPUBLISH)
    OVERDUE = (
        "the attempt is unfinished for a day",
        "see what else is found; Stripe's answers are in the log lines with this order_id",
    )
    OUTCOME_NOT_APPLIED = ("the payment has an outcome, and the order does not have it", _REPUBLISH)
    PAID_TWICE = (
        "two PaymentIntents of the order succeeded",
        "find the cause, and refund one of them at Stripe: docs/runbook.md#moneydiffers",
    )
    MONEY_DIFFERS = (
        "Stripe has charged something else than the row says",
        "find out who did it; refund what is too much at Stripe: docs/runbook.md#moneydiffers",
    )
    STRIPE_DIFFERS = (
        "Stripe and the payment's row differ",
        f"{_RECONCILES}; to stop the order, cancel it through the API",
    )
    DISPUTED = ("the charge is disputed", "respond at Stripe (Dashboard, Disputes)")
    JOB_STOPPED = (
        "a scheduled job does not run, or is behind",
        "aws lambda invoke --function-name $({function}) /dev/stdout; is its schedule enabled?",
    )

    REFUND_WAITS = ("a refund waits for the payment service", "see the log lines with this refund_id")
    REFUND_RETURNED = (
        "a refund failed at Stripe after it had succeeded: the customer has no money back",
        f"{_GIVE_BACK}; the row follows; if that cannot wait: {_RECONCILE}",
    )
    REFUND_FAILED = ("a refund failed", _GIVE_BACK)
    REFUND_HELD = ("Stripe holds a refund", "if our balance is too low, top it up (Dashboard, Balances)")
    REFUND_NEEDS_REVIEW = (
        "a person has to decide about a refund",
        "python -m ops review {order_id} {refund_id} --as made, or failed, --reason …",
    )
    REFUND_OUTCOME_NOT_APPLIED = (
        "a refund has an outcome, and the order service does not have it",
        "python -m ops dlq list: is its outcome in OrderUpdatesDlq?",
    )
    REFUND_DIFFERS = ("a refund's row and Stripe differ", "decide at Stripe")


@dataclass(frozen=True)
class Move:
    """What moves the order next, and when at the latest, in epoch seconds."""

    mover: str
    until: int | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is found about one order."""

    cause: Diagnosis
    severity: Severity
    detail: str = ""
    """What makes it this order's: ids, times, reasons."""
    next: Move | None = None
    """None if nothing moves it by itself."""
    fix: str | None = None
    """The command that fixes it, or what a person does."""


def waits(cause: Diagnosis, detail: str, move: Move) -> Finding:
    """It ends by itself."""
    return Finding(cause=cause, severity=Severity.WAITS, detail=detail, next=move)


def broken(
    cause: Diagnosis, detail: str = "", move: Move | None = None, *, fix: str | None = None, **values: str
) -> Finding:
    """A person has to act, or has to know.

    Args:
        fix: in place of the cause's.
        values: what the fix names in braces.
    """
    named = (fix or cause.fix).format(**values)
    return Finding(cause=cause, severity=Severity.BROKEN, detail=detail, next=move, fix=named)
