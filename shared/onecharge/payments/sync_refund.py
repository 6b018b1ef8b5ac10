"""Stripe's later word about a refund: its row says what Stripe says now. A bank may return a refund days later."""

import re
from collections.abc import Sequence

from onecharge.contract.refunds import REFUND_ID_PATTERN, RefundState
from onecharge.payments.refund_rules import (
    FinalizeRefund,
    FrozenRefund,
    Refund,
    StripeRefund,
    alarm_of_pending,
)
from onecharge.payments.refund_tools import RefundTools
from onecharge.payments.stripe_events import EventDeferred, StripeEvent
from onecharge.payments.sync import TRIES
from onecharge.payments.sync_refund_rules import REFUND_CAUSES, RefundDiscrepancy, find_refund_discrepancy
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.alarms import Cause


def sync_refund(order_id: str, event: StripeEvent, shown: StripeRefund, tools: RefundTools) -> None:
    """Correct the row of the event's refund by Stripe's list of refunds."""
    refund_id = shown.refund_id or ""
    about = {
        "order_id": order_id,
        "refund_id": refund_id,
        "stripe_refund_id": shown.stripe_refund_id,
        "payment_intent_id": event.payment_intent_id,
        "event_id": event.event_id,
    }
    if not re.fullmatch(REFUND_ID_PATTERN, refund_id):
        if shown.has_failed:
            # The runbook lets a person refund what a canceled order has paid: its customer has no money back.
            tools.instruments.log("a refund made by hand failed", alarm=Cause.REFUND_FAILED, **about)
        return
    for _ in range(TRIES):
        refund = tools.refunds.read(order_id, refund_id)
        if refund and _says_the_same(refund, shown):
            return
        found = _refunds_of(event, shown, refund, tools)
        if refund is None and found[0].created + RETENTION_SECONDS <= tools.instruments.clock():
            return  # Its row has expired, and was not lost.
        discrepancy = find_refund_discrepancy(refund, found)
        tools.instruments.count(f"RefundDiscrepancy.{discrepancy.name}")
        is_held = discrepancy is RefundDiscrepancy.PENDING
        alarm = alarm_of_pending(found[0].pending_reason) if is_held else REFUND_CAUSES.get(discrepancy)
        tools.instruments.log(f"refund event: {discrepancy}", alarm=alarm, **about)
        if _write_refund(discrepancy, order_id, event, refund, found, tools):
            return
    raise EventDeferred("the row kept changing")


def _says_the_same(refund: Refund, shown: StripeRefund) -> bool:
    if shown.has_failed:
        return (refund.state, refund.stripe_refund_id) == (RefundState.FAILED, shown.stripe_refund_id)
    said = RefundState.SUCCEEDED, shown.stripe_refund_id, shown.pending_reason
    return (refund.state, refund.stripe_refund_id, refund.pending_reason) == said


def _refunds_of(
    event: StripeEvent, shown: StripeRefund, refund: Refund | None, tools: RefundTools
) -> list[StripeRefund]:
    """Stripe's refunds of this id."""
    payment_intent_id = refund.request.payment_intent_id if refund else event.payment_intent_id
    if payment_intent_id is None:
        raise EventDeferred("neither the row nor the event names a PaymentIntent")
    found = tools.stripe.find_refunds(payment_intent_id, str(shown.refund_id))
    if shown.stripe_refund_id not in [each.stripe_refund_id for each in found]:
        # The API key may be another account's for a while.
        raise EventDeferred("Stripe does not show the refund that the event names")
    return found


def _write_refund(
    discrepancy: RefundDiscrepancy,
    order_id: str,
    event: StripeEvent,
    refund: Refund | None,
    found: Sequence[StripeRefund],
    tools: RefundTools,
) -> bool:
    """Write what follows; False if the row has changed since it was read."""
    [first, *_], now = found, tools.instruments.now()
    code = first.failure_reason or first.status
    failed = FinalizeRefund(RefundState.FAILED, first.stripe_refund_id, code, alarm=Cause.REFUND_FAILED)
    match discrepancy:
        case RefundDiscrepancy.RETURNED if refund:
            return tools.refunds.finalize_if_unchanged(refund, failed, now=now)
        case RefundDiscrepancy.PENDING if refund:
            return tools.refunds.record_pending_reason(refund, first.pending_reason, now=now)
        case RefundDiscrepancy.LOST_ROW:
            request = FrozenRefund(
                order_id=order_id,
                refund_id=str(first.refund_id),
                attempt=first.attempt,
                amount_minor=first.amount_minor,
                currency=first.currency,
                payment_intent_id=str(event.payment_intent_id),
                requested_at=first.created,
            )
            return tools.refunds.recover(request, failed, correlation_id=event.event_id, now=now)
    return True
