"""The decisions about a refund: pure. No clock, no I/O. docs/protocol.md, "The refund", has the rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onecharge.contract.refund_events import RefundRequested
from onecharge.payments.stripe_responses import Deferred, Failure, ResponseKind

SENT_AGAIN_SECONDS = 22 * 3600
"""For how long after the first request it is repeated: Stripe remembers its key for 24 hours."""

SETTLED_SECONDS = 72 * 3600
"""How long after the first request Stripe's list may lack the refund: it is repeated for 22 hours, executed within 23,
as we assume, and listed within 24. Three are for clocks that differ, and for the time between writing and sending."""

OVERDUE_SECONDS = 3600  # How long a refund may wait before each further delivery raises an alarm.

UNCLEAR = (ResponseKind.NO_ANSWER, ResponseKind.RETRYABLE, ResponseKind.OTHER_OBJECT)
"""Stripe may have executed the request, or may still do so."""

REFUSED = "refused"  # Our status of a refund that Stripe does not make.


@dataclass(frozen=True)
class StripeRefund:
    """A refund, as Stripe shows it; or one that it refuses to make."""

    stripe_refund_id: str | None
    """None: Stripe refuses it."""
    status: str
    amount_minor: int
    currency: str
    refund_id: str | None = None
    """Ours, from the metadata; None for a refund that was made by hand."""
    failure_reason: str | None = None
    pending_reason: str | None = None
    """Of one that is pending: `processing`, `charge_pending` or `insufficient_funds`."""

    @property
    def has_failed(self) -> bool:
        """Whether the money is back on Stripe's side. What is pending counts as made."""
        return self.status in ("failed", "canceled", REFUSED)

    @property
    def failure_code(self) -> str | None:
        """Why it has failed; None if it has not."""
        return (self.failure_reason or self.status) if self.has_failed else None


class Sent(NamedTuple):
    """What the payment's row says of a refund, from before its first request on."""

    since: int = 0
    """When the first request was sent that Stripe may have executed, in epoch seconds; 0: there is none."""
    unanswered: tuple[str, ...] = ()
    """Those since then that Stripe has not answered, each by a name of its own: to take one off is idempotent."""
    code: str | None = None
    """Why Stripe has refused it: it is never sent again."""

    def once_more(self, name: str, now: int) -> "Sent":
        """With one more request."""
        since = self.open_since(now)
        return Sent(since or now, (*(self.unanswered if since else ()), name))

    def answered(self, name: str, code: str | None) -> "Sent":
        """With the answer to this one, which says nothing of the others."""
        others = tuple(each for each in self.unanswered if each != name)
        return Sent(self.since if others else 0, others, code or self.code)

    def open_since(self, now: int) -> int:
        """The same; 0 also if Stripe's list would show it by now."""
        return self.since if now < self.since + SETTLED_SECONDS else 0


def own(refund_id: str, listed: Sequence[StripeRefund]) -> StripeRefund | None:
    """The refund of this id among all of a PaymentIntent, the newest first; rather one that has not failed."""
    found = [each for each in listed if each.refund_id == refund_id]
    return min(found, key=lambda each: each.has_failed, default=None)


def decide(wanted: RefundRequested, listed: Sequence[StripeRefund], *, sent: Sent, now: int) -> StripeRefund | None:
    """What follows from Stripe's refunds of the order's PaymentIntent: what is told, or None: send it. Raises Deferred.

    Args:
        listed: all of them, the newest first; read after the row.
        sent: of the row.
        now: epoch seconds, before all of this was read.
    """
    if found := own(wanted.refund_id, listed):
        return found
    since = sent.open_since(now)
    if since and (sent.code or now >= since + SENT_AGAIN_SECONDS):
        raise Deferred("Stripe may have made it by a request without an answer, and not list it yet")
    if sent.code is None:
        return None
    return StripeRefund(None, REFUSED, wanted.amount_minor, wanted.currency, wanted.refund_id, sent.code)


def refusal_of(failure: Failure) -> str | None:
    """The code if Stripe does not make this refund; None if it may make it later."""
    is_refused = failure.kind in (ResponseKind.REFUND_REFUSED, ResponseKind.AMOUNT_REFUSED)
    return (failure.code or "more_than_is_left") if is_refused else None
