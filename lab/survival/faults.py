"""The faults, one for each row of the table. A fault occurs once in a schedule, at a step that the seed chooses."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lab.survival.design import DAY_SECONDS


class FaultKind(Enum):
    """What happens once, at one of the steps where it can happen."""

    CRASH = "crash"
    """The worker dies before or after one of its effects; a timeout of Lambda is the same."""
    PAUSE = "pause"
    """The worker pauses until its message has been delivered again, then continues."""
    DELIVERED_AGAIN = "delivered again"
    """The message is not deleted although it was handled: one redelivery, 1 s to 3 min later."""
    DELIVERED_TWICE = "delivered twice"
    """Two workers receive the message at once."""
    WRITE_UNANSWERED = "answer lost"
    """DynamoDB writes, and the response is lost. boto3 retries, or has no retries left."""
    CHARGE_UNANSWERED = "drop after"
    """Stripe charges, and the responses to the request and its retries are lost."""
    SERVER_ERROR_CHARGED = "500 after"
    """Stripe charges and responds with 500."""
    SERVER_ERROR = "500 before"
    """Stripe responds with 500 and does not charge."""


STRIPE_FAULTS = (FaultKind.CHARGE_UNANSWERED, FaultKind.SERVER_ERROR_CHARGED, FaultKind.SERVER_ERROR)
"""Their values are the names that the shop's Stripe gives them."""


@dataclass(frozen=True)
class Fault:
    """One row of the table. With only a title, nothing goes wrong."""

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


_HOUR = 3600

FAULTS: Mapping[str, Fault] = {
    "nothing": Fault("nothing goes wrong"),
    "delivered-again": Fault("message delivered twice, one after the other", FaultKind.DELIVERED_AGAIN),
    "delivered-twice-at-once": Fault("message delivered twice at once", FaultKind.DELIVERED_TWICE),
    "published-hours-later": Fault(
        "order published again 1 to 2 hours later", published_again_after=(_HOUR, 2 * _HOUR)
    ),
    "crash": Fault("worker crashes, or is killed at its timeout", FaultKind.CRASH),
    "zombie": Fault("worker pauses past all timeouts, then continues", FaultKind.PAUSE),
    "charge-unanswered": Fault("Stripe charges, every response is lost", FaultKind.CHARGE_UNANSWERED),
    "500-charged": Fault("Stripe responds with 500, has charged", FaultKind.SERVER_ERROR_CHARGED),
    "500-not-charged": Fault("Stripe responds with 500, has not charged", FaultKind.SERVER_ERROR),
    "stripe-down": Fault("Stripe is down for 6 hours", stripe_down_seconds=6 * _HOUR),
    "write-unanswered": Fault("DynamoDB writes, the response is lost", FaultKind.WRITE_UNANSWERED),
    "crash-day-13": Fault(
        "worker crashes, redriven from the DLQ on day 13",
        FaultKind.CRASH,
        crashed_to_dlq=True,
        redriven_after_seconds=13 * DAY_SECONDS,
    ),
    "restored": Fault("table restored, order published again", restored_after=(_HOUR, DAY_SECONDS, 13 * DAY_SECONDS)),
    "crash-then-deploy": Fault(
        "worker crashes, a deploy changes the metadata", FaultKind.CRASH, redelivery_differs=True
    ),
}
"""By name."""

SEEN = (
    ("delivered-again", "saleor/apps/issues/2446", "A repeated request for a refund is not recognized."),
    ("delivered-twice-at-once", "saleor/saleor/issues/19220", "Webhook and customer each may create a PaymentIntent."),
    ("delivered-twice-at-once", "medusajs/medusa/issues/13301", "Webhook and customer in parallel: some are lost."),
    ("crash", "woocommerce/woocommerce-gateway-stripe/pull/3725", "A halt after the charge; a retry can charge again."),
    ("crash", "aws-powertools/powertools-lambda-python/issues/8049", "After a timeout a withdrawal is repeated."),
    ("charge-unanswered", "woocommerce/woocommerce-gateway-stripe/pull/3912", "Retries without a key charge again."),
    ("charge-unanswered", "juspay/hyperswitch/pull/2380", "After the last retry it is set to failed, charged or not."),
    ("crash-then-deploy", "vendurehq/vendure/issues/2364", "Stripe refuses changed metadata under the same key."),
)
"""Where faults happened to somebody: issues and pull requests on GitHub, and what they say."""
