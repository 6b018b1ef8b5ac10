"""A refund that changes at Stripe after it was made: the bank may return it days later.

An event is a hint: it names a refund, and Stripe's list of refunds says what became of it. So events may come late,
more than once and in any order.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from aws_lambda_powertools import Logger

from onecharge.contract.refunds import RefundState
from onecharge.payments.charges.gateway import RefundEvent
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.protocol import (
    FinalizeRefund,
    FoundRefund,
    FrozenRefund,
    Refund,
    RefundDiscrepancy,
    find_refund_discrepancy,
    refund_id_of_canceled_order,
)
from onecharge.payments.refunds.store import RefundStore

REFUND_ID_PATTERN = r"rfd_[0-9a-f]{32}"
_TRIES = 3


class RefundEventDeferred(Exception):
    """The event cannot be handled now: Stripe, or the scheduled run, is to deliver it again."""


@dataclass(frozen=True)
class RefundEventHandler:
    """Compares rows with Stripe, and corrects them; `clock` gives the time in epoch seconds."""

    store: RefundStore
    gateway: StripeRefunds
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def handle(self, event: RefundEvent) -> RefundDiscrepancy | None:
        """Handle one event of a refund; None if it is none of ours, as one that was made by hand.

        Raises:
            RefundEventDeferred: the row kept changing, or Stripe does not show the refund that it names.
            LookupInconclusive, stripe.StripeError: Stripe gave no answer.
        """
        order_id, refund_id = event.order_id, event.refund_id or ""
        if order_id is None or not re.fullmatch(REFUND_ID_PATTERN, refund_id):
            self.count("RefundEventIgnored")
            return None
        for _ in range(_TRIES):
            # The row first: what Stripe shows is then newer than the revision that it is written on.
            refund = self.store.read(order_id, refund_id)
            found = self._find(event, refund)
            discrepancy = find_refund_discrepancy(refund, found)
            if self._corrected(event, refund, found, discrepancy):
                self._report(event, discrepancy)
                return discrepancy
        raise RefundEventDeferred("the row kept changing")

    def _find(self, event: RefundEvent, refund: Refund | None) -> list[FoundRefund]:
        payment_intent_id = refund.request.payment_intent_id if refund else event.payment_intent_id
        if payment_intent_id is None:
            raise RefundEventDeferred("neither the row nor the event names a PaymentIntent")
        found = self.gateway.find_refunds(payment_intent_id, str(event.refund_id))
        if event.stripe_refund_id not in [each.stripe_refund_id for each in found]:
            # The secret may be another account's for a while.
            raise RefundEventDeferred("Stripe does not show the refund that the event names")
        return found

    def _corrected(
        self, event: RefundEvent, refund: Refund | None, found: list[FoundRefund], discrepancy: RefundDiscrepancy
    ) -> bool:
        """Whether there is nothing to write, or it was written."""
        now = int(self.clock())
        if discrepancy not in (RefundDiscrepancy.RETURNED, RefundDiscrepancy.LOST_ROW):
            return True
        [returned] = found
        final = FinalizeRefund(
            RefundState.FAILED, returned.stripe_refund_id, returned.failure_reason or returned.status, alarm=True
        )
        if refund is not None:
            return self.store.finalize_unclaimed(refund, final, now=now)
        request = FrozenRefund(
            order_id=str(event.order_id),
            refund_id=str(event.refund_id),
            attempt=returned.attempt,
            amount_minor=returned.amount_minor,
            currency=returned.currency,
            payment_intent_id=str(event.payment_intent_id),
            requested_at=returned.created,
        )
        is_internal = request.refund_id == refund_id_of_canceled_order(request.order_id, request.payment_intent_id)
        return self.store.recover(request, final, correlation_id=event.event_id, now=now, is_internal=is_internal)

    def _report(self, event: RefundEvent, discrepancy: RefundDiscrepancy) -> None:
        is_alarm = discrepancy is not RefundDiscrepancy.NONE
        self.count(f"RefundDiscrepancy.{discrepancy.name}")
        if is_alarm:
            self.count("Alarm")
        write = self.logger.error if is_alarm else self.logger.info
        write(
            f"refund event: {discrepancy}",
            extra={
                "order_id": event.order_id,
                "refund_id": event.refund_id,
                "stripe_refund_id": event.stripe_refund_id,
                "event_id": event.event_id,
            },
        )
