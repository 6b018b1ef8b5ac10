"""What is found: the cause, what it means for this order, who moves it next, and the command that mends it."""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto


class Severity(Enum):
    """Whether somebody has to act."""

    FINE = auto()
    """Nothing is waited for."""
    WAITS = auto()
    """It ends by itself, at the latest at `until`."""
    BROKEN = auto()
    """Somebody has to act, or has to know."""


class Cause(StrEnum):
    """What is found, in one sentence: stable names for scripts."""

    ENDED = "nothing is waited for"
    DECLINED = "the card was declined: another card can be tried"
    NOT_CLAIMED_YET = "the order was stored a moment ago: its message is on its way"
    IN_PROGRESS = "a worker has the payment's row"
    BACKING_OFF = "the attempt could not be finished: its message waits for its next delivery"
    AUTHENTICATION_AWAITED = "the customer has to authenticate (3-D Secure)"
    OUTCOME_ON_ITS_WAY = "the payment has an outcome, which is on its way to the order"
    CANCELING = "a cancellation is requested: reconcile finishes it"
    STRIPE_PROCESSING = "Stripe is processing the payment"

    NO_SUCH_ORDER = "neither the tables nor Stripe know this order"
    ORDER_LOST = "there is a payment, and no order: the item was lost, as in a restore"
    ORDER_UNREADABLE = "the order's item breaks its schema: it cannot be published"
    STRIPE_KEY_REFUSED = "Stripe refuses the API key"
    STRIPE_UNAVAILABLE = "Stripe does not answer"
    LOOKUP_INCOMPLETE = "Stripe has more to show than was read"
    POISON = "a message of the order is in a DLQ: it cannot be parsed or validated"
    UNDELIVERED = "a message of the order is in a DLQ: it was received too often, or could not be delivered"
    UNPUBLISHABLE = "a stored change of the order could not be published: its stream record was put aside"
    NEVER_PUBLISHED = "the order was never published: nobody reads the stream of the Orders table"
    QUEUE_NOT_READ = "the order was published, and nobody reads the payments queue"
    NOT_CLAIMED = "the order was stored, and no worker has claimed it"
    ROW_LOST = "the payment's row was lost: Stripe knows the order's PaymentIntent"
    LEASE_OF_DEAD_WORKER = "a worker died with the row's lease: the lease has expired"
    ABANDONED = "the attempt is unfinished, and no message claims it any more"
    OVERDUE = "the attempt is unfinished for a day"
    REQUEST_REFUSED = "Stripe refuses our request as invalid"
    OUTCOME_NOT_PUBLISHED = "the outcome was never published: nobody reads the stream of the Payments table"
    OUTCOME_NOT_READ = "the outcome was published, and nobody reads the order-updates queue"
    OUTCOME_NOT_APPLIED = "the payment has an outcome, and the order does not have it"
    PAID_AT_STRIPE = "the PaymentIntent succeeded, and the row is unfinished"
    PAID_LATE = "the PaymentIntent succeeded after its attempt was declined or reviewed"
    PAID_TWICE = "two PaymentIntents of the order succeeded"
    PAID_AFTER_CANCEL = "the order is canceled, and a PaymentIntent of it succeeded"
    OTHER_MONEY = "amount or currency of the PaymentIntent is not the frozen one"
    REVERSED = "the row says SUCCEEDED, and its PaymentIntent does not"
    CANCELED_AT_STRIPE = "the PaymentIntent was canceled at Stripe by hand"
    DECIDED_AT_STRIPE = "Stripe has decided the attempt, and the row does not have it"
    AUTHENTICATION_OVERDUE = "the customer did not authenticate in time, and the PaymentIntent is not canceled yet"
    NEEDS_REVIEW = "a person has to decide"
    DISPUTED = "the charge is disputed"
    JOB_STOPPED = "a scheduled job does not run, or is behind"
    EVENTS_NOT_ARRIVED = "Stripe has events of the order that the webhook never processed"
    REFUND_WAITS = "a refund waits for the payment service"
    REFUND_RETURNED = "a refund failed at Stripe after it had succeeded: the customer has no money back"
    REFUND_FAILED = "a refund failed"
    REFUND_NEEDS_REVIEW = "a person has to decide about a refund"
    REFUND_OUTCOME_NOT_APPLIED = "a refund has an outcome, and the order service does not have it"
    REFUND_DIFFERS = "a refund's row and Stripe differ"


@dataclass(frozen=True)
class Move:
    """Who moves it next, and when at the latest, in epoch seconds."""

    mover: str
    until: int | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is found about one order."""

    cause: Cause
    severity: Severity
    detail: str = ""
    """What makes it this order's: ids, times, reasons."""
    next: Move | None = None
    """None if nobody moves it by itself."""
    mend: str | None = None
    """The command that mends it, or what a person does."""


def waits(cause: Cause, detail: str, move: Move) -> Finding:
    """It ends by itself."""
    return Finding(cause=cause, severity=Severity.WAITS, detail=detail, next=move)


def broken(cause: Cause, detail: str = "", *, mend: str, move: Move | None = None) -> Finding:
    """Somebody has to act, or has to know."""
    return Finding(cause=cause, severity=Severity.BROKEN, detail=detail, mend=mend, next=move)


def fine(cause: Cause, detail: str = "") -> Finding:
    """Nothing is waited for."""
    return Finding(cause=cause, severity=Severity.FINE, detail=detail)
