"""The faults, one for each row of the table. A fault occurs once in a schedule, at a step that the seed chooses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from lab.survival.design import DAY_SECONDS


class FaultKind(Enum):
    """What happens once, at one of the steps where it can happen."""

    CRASH = auto()
    """The worker dies before or after one of its effects."""
    TIMEOUT = auto()
    """The worker pauses until Lambda kills it at its timeout."""
    PAUSE = auto()
    """The worker pauses until its message has been delivered again, then continues."""
    DELIVERED_AGAIN = auto()
    """The message is not deleted although it was handled: one redelivery, 1 s to 3 min later."""
    DELIVERED_TWICE = auto()
    """Two workers receive the message at once."""
    DELIVERED_WHILE_SLOW = auto()
    """The worker pauses for 10 to 25 s, within its timeout; SQS delivers the message again after 6 s all the same."""
    THROTTLED = auto()
    """DynamoDB throttles one request and all of boto3's retries."""
    WRITE_UNANSWERED = auto()
    """DynamoDB writes, and the response is lost. boto3 retries, or has no retries left."""
    CHARGE_UNANSWERED_ONCE = auto()
    """Stripe charges, and the response is lost; stripe's client retries."""
    CHARGE_UNANSWERED = auto()
    """Stripe charges, and the responses to the request and its retries are lost."""
    SERVER_ERROR_CHARGED = auto()
    """Stripe charges and responds with 500."""
    SERVER_ERROR = auto()
    """Stripe responds with 500 and does not charge."""
    SERVER_ERROR_CHARGES_LATER = auto()
    """Stripe responds with 500 and charges 15 minutes later."""


@dataclass(frozen=True)
class Fault:
    """One row of the table. With only a name and a title, nothing goes wrong."""

    name: str
    title: str
    kind: FaultKind | None = None
    published_again_after: tuple[int, int] | None = None
    """The order is published again, with another message id, after a number of seconds in this range."""
    stripe_down_seconds: int = 0
    restored_after: tuple[int, ...] = ()
    """After one of these numbers of seconds all tables are empty, and the order is published again."""
    crashed_to_dlq: bool = False
    """The crashed worker's message goes to the DLQ, as if the function could not start any more."""
    redelivery_differs: bool = False
    """After the crash a deployed version sends other metadata for the same order."""
    redriven_after_seconds: int = DAY_SECONDS
    """When the operator redrives the DLQ for the first time; then daily."""
    seen: Sequence[tuple[str, str]] = ()
    """Where it happened to somebody: issues and pull requests on GitHub, and what they say."""


_HOUR = 3600

FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("nothing", "nothing goes wrong"),
        Fault(
            "delivered-again",
            "message delivered twice, one after the other",
            FaultKind.DELIVERED_AGAIN,
            seen=(
                (
                    "https://github.com/saleor/apps/issues/2446",
                    "The request for a refund is delivered again; nothing recognizes that it was submitted before.",
                ),
            ),
        ),
        Fault("delivered-twice-at-once", "message delivered twice at once", FaultKind.DELIVERED_TWICE),
        Fault(
            "delivered-again-while-slow",
            "message delivered again while its worker is slow",
            FaultKind.DELIVERED_WHILE_SLOW,
        ),
        Fault(
            "published-twice",
            "order published twice at once",
            published_again_after=(0, 0),
            seen=(
                (
                    "https://github.com/saleor/saleor/issues/19220",
                    "Webhook and customer complete a checkout in parallel; each may create a PaymentIntent.",
                ),
                (
                    "https://github.com/medusajs/medusa/issues/13301",
                    "Webhook and customer process a payment in parallel; some orders do not appear.",
                ),
            ),
        ),
        Fault(
            "published-hours-later",
            "order published again 1 to 2 hours later",
            published_again_after=(_HOUR, 2 * _HOUR),
        ),
        Fault(
            "crash",
            "worker crashes",
            FaultKind.CRASH,
            seen=(
                (
                    "https://github.com/woocommerce/woocommerce-gateway-stripe/pull/3725",
                    "If the process halts between Stripe's charge and the order's update, a retry can charge again.",
                ),
            ),
        ),
        Fault(
            "time-out",
            "worker pauses, killed at its timeout",
            FaultKind.TIMEOUT,
            seen=(
                (
                    "https://github.com/aws-powertools/powertools-lambda-python/issues/8049",
                    "After Lambda's timeout the same payload runs again, which repeats a withdrawal.",
                ),
            ),
        ),
        Fault("zombie", "worker pauses past all timeouts, then continues", FaultKind.PAUSE),
        Fault("charge-unanswered-once", "Stripe charges, one response is lost", FaultKind.CHARGE_UNANSWERED_ONCE),
        Fault(
            "charge-unanswered",
            "Stripe charges, every response is lost",
            FaultKind.CHARGE_UNANSWERED,
            seen=(
                (
                    "https://github.com/woocommerce/woocommerce-gateway-stripe/pull/3912",
                    "Several charges for one order; the suspected cause is network retries without a key.",
                ),
                (
                    "https://github.com/juspay/hyperswitch/pull/2380",
                    "A payment whose connector timed out is set to failed after the last retry, charged or not.",
                ),
            ),
        ),
        Fault("500-charged", "Stripe responds with 500, has charged", FaultKind.SERVER_ERROR_CHARGED),
        Fault("500-not-charged", "Stripe responds with 500, has not charged", FaultKind.SERVER_ERROR),
        Fault("500-charges-later", "Stripe responds with 500, charges later", FaultKind.SERVER_ERROR_CHARGES_LATER),
        Fault("stripe-down", "Stripe is down for 6 hours", stripe_down_seconds=6 * _HOUR),
        Fault("throttled", "DynamoDB throttles", FaultKind.THROTTLED),
        Fault("write-unanswered", "DynamoDB writes, the response is lost", FaultKind.WRITE_UNANSWERED),
        Fault(
            "crash-day-13",
            "worker crashes, redriven from the DLQ on day 13",
            FaultKind.CRASH,
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
            FaultKind.CRASH,
            redelivery_differs=True,
            seen=(
                (
                    "https://github.com/vendurehq/vendure/issues/2364",
                    "The metadata of an order changes; Stripe refuses the second request with the same key.",
                ),
            ),
        ),
    )
}


_STRIPE_FAULTS = {
    FaultKind.CHARGE_UNANSWERED_ONCE: "drop after",
    FaultKind.CHARGE_UNANSWERED: "drop after",
    FaultKind.SERVER_ERROR_CHARGED: "500 after",
    FaultKind.SERVER_ERROR: "500 before",
    FaultKind.SERVER_ERROR_CHARGES_LATER: "500, executed later",
}
"""As the shop's Stripe names them."""


class FaultInjector:
    """A schedule's fault occurs once, at the opportunity with the number `at`; opportunities are counted from 0."""

    def __init__(self, fault: Fault, at: int | None) -> None:
        self._kind, self._at = fault.kind, at
        self._cut_off: object = None
        """The worker whose requests no longer reach Stripe."""
        self.opportunities = 0
        self.occurred = fault.name == "nothing"

    def occurs(self) -> bool:
        """Count an opportunity; returns whether the fault occurs now."""
        occurs = self.opportunities == self._at
        self.opportunities += 1
        self.occurred |= occurs
        return occurs

    def in_request(self, request: str, possible: Sequence[str], worker: object) -> str | None:
        """The fault that a request to DynamoDB or Stripe meets, one of the possible ones; None if it meets none."""
        if "throttled" in possible and self._kind is FaultKind.THROTTLED:
            return "throttled" if self.occurs() else None
        if "answer lost" in possible and self._kind is FaultKind.WRITE_UNANSWERED and request != "dynamodb GetItem":
            return "answer lost" if self.occurs() else None
        if "drop after" in possible and self._kind in _STRIPE_FAULTS:
            occurs = self.occurs()
            if self._kind is FaultKind.CHARGE_UNANSWERED and (occurs or self._cut_off is worker):
                self._cut_off = worker if occurs else None
            return _STRIPE_FAULTS[self._kind] if occurs else None
        if "drop before" in possible and self._cut_off is worker:
            # Stripe has this key already, so it does not matter whether the retry arrives.
            return "drop before"
        return None
