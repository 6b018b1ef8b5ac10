"""Events of a refund after it was created: the bank may return it days later.

An event is only a hint, since events may be late, duplicated or out of order: it names a refund, and the list of the
PaymentIntent's refunds says what it is now.
"""

import re
from dataclasses import dataclass

from onecharge.contract.refunds import RefundState
from onecharge.payments.instruments import Instruments
from onecharge.payments.refunds.discrepancy import Discrepancy, find_discrepancy
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.protocol import (
    FinalizeRefund,
    FoundRefund,
    FrozenRefund,
    Refund,
    refund_id_of_canceled_order,
)
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.stripe_events import EventDeferred, RefundEvent
from onecharge.runtime.alarms import Cause

REFUND_ID_PATTERN = r"rfd_[0-9a-f]{32}"
_TRIES = 3
_CAUSES = {
    Discrepancy.RETURNED: Cause.REFUND_FAILED,
    Discrepancy.LOST_ROW: Cause.ROW_LOST,
    Discrepancy.MADE_AFTER_FAILED: Cause.MONEY_DIFFERS,
    Discrepancy.SEVERAL: Cause.MONEY_DIFFERS,
}


@dataclass(frozen=True)
class RefundEventHandler:
    """Compares rows with Stripe, and corrects them."""

    store: RefundStore
    gateway: StripeRefunds
    instruments: Instruments

    def handle(self, event: RefundEvent) -> Discrepancy | None:
        """Correct the refund's row, if there is a discrepancy. None: not our refund, as one that was made by hand.

        Raises:
            EventDeferred: the row kept changing, or Stripe does not show the refund that the event names.
            LookupInconclusive, stripe.StripeError: Stripe did not answer, or refused.
            BotoCoreError, ClientError: DynamoDB did not answer.
        """
        order_id, refund_id = event.order_id, event.refund_id or ""
        if order_id is None or not re.fullmatch(REFUND_ID_PATTERN, refund_id):
            self.instruments.count("RefundEventIgnored")
            return None
        for _ in range(_TRIES):
            # Read the row first: what Stripe shows is then newer than the revision that it is written on.
            refund = self.store.read(order_id, refund_id)
            found = self._find(event, refund)
            discrepancy = find_discrepancy(refund, found)
            if self._correct(event, refund, found, discrepancy):
                self._report(event, discrepancy)
                return discrepancy
        raise EventDeferred("the row kept changing")

    def _find(self, event: RefundEvent, refund: Refund | None) -> list[FoundRefund]:
        payment_intent_id = refund.request.payment_intent_id if refund else event.payment_intent_id
        if payment_intent_id is None:
            raise EventDeferred("neither the row nor the event names a PaymentIntent")
        found = self.gateway.find_refunds(payment_intent_id, str(event.refund_id))
        if event.stripe_refund_id not in [each.stripe_refund_id for each in found]:
            # The API key may be another account's for a while.
            raise EventDeferred("Stripe does not show the refund that the event names")
        return found

    def _correct(
        self, event: RefundEvent, refund: Refund | None, found: list[FoundRefund], discrepancy: Discrepancy
    ) -> bool:
        """Write what Stripe shows; False if the row has changed since it was read."""
        if discrepancy not in (Discrepancy.RETURNED, Discrepancy.LOST_ROW):
            return True
        [returned] = found
        code = returned.failure_reason or returned.status
        final = FinalizeRefund(RefundState.FAILED, returned.stripe_refund_id, code, alarm=Cause.REFUND_FAILED)
        if refund is not None:
            return self.store.finalize_unclaimed(refund, final, now=self.instruments.now())
        return self._recover(event, returned, final)

    def _recover(self, event: RefundEvent, returned: FoundRefund, final: FinalizeRefund) -> bool:
        request = FrozenRefund(
            order_id=str(event.order_id),
            refund_id=str(event.refund_id),
            attempt=returned.attempt,
            amount_minor=returned.amount_minor,
            currency=returned.currency,
            payment_intent_id=str(event.payment_intent_id),
            requested_at=returned.created,
        )
        return self.store.recover(
            request,
            final,
            correlation_id=event.event_id,
            now=self.instruments.now(),
            is_internal=request.refund_id == refund_id_of_canceled_order(request.order_id, request.payment_intent_id),
        )

    def _report(self, event: RefundEvent, discrepancy: Discrepancy) -> None:
        self.instruments.count(f"RefundDiscrepancy.{discrepancy.name}")
        self.instruments.log(
            f"refund event: {discrepancy}",
            alarm=_CAUSES.get(discrepancy),
            order_id=event.order_id,
            refund_id=event.refund_id,
            stripe_refund_id=event.stripe_refund_id,
            event_id=event.event_id,
        )
