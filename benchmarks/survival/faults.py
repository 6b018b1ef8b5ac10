"""What goes wrong: one kind of fault a row of the table, once a schedule, at a place that the choices pick."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

DAY_SECONDS = 24 * 3600


class Strike(Enum):
    """What may happen, once, at one of the places where it can happen."""

    CRASH = auto()
    """The worker is gone before or after any of its effects."""
    TIME_OUT = auto()
    """The worker stands still there until Lambda kills it at its timeout."""
    ZOMBIE = auto()
    """The worker stands still there until its message has been delivered again, and goes on all the same."""
    DELIVERED_AGAIN = auto()
    """The message is not deleted although it was handled: it comes again, once, 1 s to 3 min later."""
    DELIVERED_TWICE = auto()
    """Two workers get the message at once."""
    DELIVERED_WHILE_SLOW = auto()
    """The worker stands still for 10 to 25 s, which it may; the message comes again after 6 s, as it may."""
    THROTTLED = auto()
    """DynamoDB refuses one request and all that boto3 sends in its place."""
    WRITE_UNANSWERED = auto()
    """DynamoDB writes, its answer is lost. boto3 sends the request again, or has run out of tries."""
    CHARGE_UNANSWERED_ONCE = auto()
    """Stripe charges, its answer is lost; stripe's client sends the request again."""
    CHARGE_UNANSWERED = auto()
    """Stripe charges, and no try of stripe's client is answered."""
    SERVER_ERROR_CHARGED = auto()
    """Stripe answers 500 and has charged."""
    SERVER_ERROR = auto()
    """Stripe answers 500 and has not charged."""
    SERVER_ERROR_CHARGES_LATER = auto()
    """Stripe answers 500 and charges a quarter of an hour later."""


@dataclass(frozen=True)
class Fault:
    """One row. Without anything but a name, nothing goes wrong."""

    name: str
    title: str
    strike: Strike | None = None
    published_again_after: tuple[int, int] | None = None
    """The order is published a second time, under another message id, so many seconds later: from, to."""
    stripe_down_seconds: int = 0
    restored_after: tuple[int, ...] = ()
    """One of so many seconds later all tables lose their rows, and the order is published again."""
    crashed_to_dlq: bool = False
    """The message of the worker that crashed lands in the DLQ, as when the function cannot even start any more."""
    redelivery_differs: bool = False
    """After the crash a new version is deployed, under which the same order has other metadata."""
    redriven_after_seconds: int = DAY_SECONDS
    """When the operator redrives the DLQ for the first time; after that, each day."""


_HOUR = 3600

FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("nothing", "nothing goes wrong"),
        Fault("delivered-again", "message delivered twice, one after the other", Strike.DELIVERED_AGAIN),
        Fault("delivered-twice-at-once", "message delivered twice at once", Strike.DELIVERED_TWICE),
        Fault(
            "delivered-again-while-slow",
            "message delivered again while its worker is slow",
            Strike.DELIVERED_WHILE_SLOW,
        ),
        Fault("published-twice", "order published twice at once", published_again_after=(0, 0)),
        Fault(
            "published-hours-later",
            "order published again 1 to 2 hours later",
            published_again_after=(_HOUR, 2 * _HOUR),
        ),
        Fault("crash", "worker crashes", Strike.CRASH),
        Fault("time-out", "worker stands still, killed at its time-out", Strike.TIME_OUT),
        Fault("zombie", "worker stands still past all time-outs, goes on", Strike.ZOMBIE),
        Fault("charge-unanswered-once", "Stripe charges, one answer is lost", Strike.CHARGE_UNANSWERED_ONCE),
        Fault("charge-unanswered", "Stripe charges, no try is answered", Strike.CHARGE_UNANSWERED),
        Fault("500-charged", "Stripe answers 500, has charged", Strike.SERVER_ERROR_CHARGED),
        Fault("500-not-charged", "Stripe answers 500, has not charged", Strike.SERVER_ERROR),
        Fault("500-charges-later", "Stripe answers 500, charges later", Strike.SERVER_ERROR_CHARGES_LATER),
        Fault("stripe-down", "Stripe is down for 6 hours", stripe_down_seconds=6 * _HOUR),
        Fault("throttled", "DynamoDB throttles", Strike.THROTTLED),
        Fault("write-unanswered", "DynamoDB writes, the answer is lost", Strike.WRITE_UNANSWERED),
        Fault(
            "crash-day-13",
            "worker crashes, redriven from the DLQ on day 13",
            Strike.CRASH,
            crashed_to_dlq=True,
            redriven_after_seconds=13 * DAY_SECONDS,
        ),
        Fault(
            "restored",
            "table restored, order published again",
            restored_after=(_HOUR, DAY_SECONDS, 13 * DAY_SECONDS),
        ),
        Fault(
            "crash-then-deploy",
            "worker crashes, a deploy changes the metadata",
            Strike.CRASH,
            redelivery_differs=True,
        ),
    )
}
