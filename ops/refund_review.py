"""A refund that needs review: what a person may decide about it, by Stripe's refunds of its id.

    refund-made      Stripe shows exactly one, succeeded or pending, of the frozen money     ─► SUCCEEDED
    refund-failed    Stripe shows those that failed; or none, a day after the last attempt   ─► FAILED

An account that does not have the PaymentIntent shows none either: it decides nothing.

FAILED frees the amount, so that it can be refunded again: nothing may create the refund any more. No worker claims a
refund that needs review, and Stripe executes what it has received within a day or never (payments/refunds/protocol.py).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from onecharge.contract.refunds import RefundState
from onecharge.payments.charges.gateway import NoSuchPaymentIntent, StripeGateway
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.protocol import (
    SPENT_KEY_SECONDS,
    FinalizeRefund,
    FoundRefund,
    Refund,
    RefundResponseKind,
    kind_of_refund,
)
from onecharge.payments.refunds.store import RefundStore
from ops.connection import Stack
from ops.errors import ExitStatus
from ops.output import Report
from ops.resolutions import Refused
from ops.review_store import Review, with_record


class RefundResolution(StrEnum):
    """What a person decides about a refund."""

    MADE = "refund-made"
    FAILED = "refund-failed"


_STATES = {RefundResolution.MADE: RefundState.SUCCEEDED, RefundResolution.FAILED: RefundState.FAILED}


def decide_refund(
    resolution: RefundResolution, refund: Refund | None, found: Sequence[FoundRefund], *, now: int
) -> FinalizeRefund | Refused:
    """What follows. `found` is complete: every refund of this id at Stripe."""
    if refund is None or refund.state is not RefundState.NEEDS_REVIEW:
        return Refused("only a refund that is NEEDS_REVIEW is resolved")
    kinds = [kind_of_refund(refund.request, each) for each in found]
    shown = ", ".join(f"{each.stripe_refund_id} is {each.status}" for each in found) or "no refund of this id"
    returned = [each for each, kind in zip(found, kinds, strict=True) if kind is RefundResponseKind.RETURNED]
    if resolution is RefundResolution.MADE:
        if kinds != [RefundResponseKind.MADE]:
            return Refused(f"Stripe shows {shown}: exactly one has to be made, of the frozen amount")
        return FinalizeRefund(RefundState.SUCCEEDED, found[0].stripe_refund_id)
    if len(returned) != len(found):
        return Refused(f"Stripe shows {shown}: what may give money back is not failed")
    if not found and now - (refund.finalized_at or now) < SPENT_KEY_SECONDS:
        return Refused("Stripe shows none, and may still execute what was sent: wait a day from the last attempt")
    code = (returned[0].failure_reason or returned[0].status) if returned else "never made"
    return FinalizeRefund(RefundState.FAILED, returned[0].stripe_refund_id if returned else None, code)


@dataclass(frozen=True)
class RefundReviewStore(RefundStore):
    """The Refunds table for reviews."""

    def resolve(self, refund: Refund, final: FinalizeRefund, review: Review) -> bool:
        """Write the outcome on the revision, and the record; False if the row has changed since."""
        changes = with_record(self._final_changes(final, review.at), review, refund.revision)
        return self._write_if_unchanged(refund, changes, only_if="#state = :needs_review")


def resolve_refund(
    stack: Stack, order_id: str, refund_id: str, resolution: RefundResolution, reason: str, *, yes: bool
) -> Report:
    """Read the row, then Stripe, and write on the row's revision. Raises stripe.StripeError, LookupInconclusive."""
    store = RefundReviewStore(stack.dynamodb, stack.resource("RefundsTable"))
    now = int(time.time())
    refund = store.read(order_id, refund_id)
    if refund is not None and refund.state is _STATES[resolution]:
        return _emit_again(store, refund, resolution, now=now, yes=yes)
    decision = _decide(stack, resolution, refund, now=now)
    is_done = False
    if isinstance(decision, Refused) or refund is None:
        what = f"refused: {decision.why}" if isinstance(decision, Refused) else "refused"
    elif not yes:
        what = f"would write {decision.state} on revision {refund.revision}; --yes does it"
    else:
        is_done = store.resolve(refund, decision, Review(resolution, stack.caller, reason, now))
        what = f"done: {decision.state}" if is_done else "refused: the row has changed since it was read: check again"
    return _report(order_id, refund_id, resolution, what, is_done)


def _emit_again(store: RefundStore, refund: Refund, resolution: RefundResolution, *, now: int, yes: bool) -> Report:
    """The row says so already. Its outcome may have been lost: nobody asks again for a refund in review."""
    is_done = yes and store.reemit_outcome(refund, now=now)
    what = f"the row is {refund.state} already; its outcome {'is' if is_done else 'would be'} emitted again"
    return _report(refund.request.order_id, refund.request.refund_id, resolution, what, is_done)


def _report(order_id: str, refund_id: str, resolution: RefundResolution, what: str, is_done: bool) -> Report:
    document = {"order_id": order_id, "refund_id": refund_id, "resolution": resolution, "done": is_done, "what": what}
    return Report(document, [f"{refund_id}: {what}"], ExitStatus.OK if is_done else ExitStatus.FOUND)


def _decide(stack: Stack, resolution: RefundResolution, refund: Refund | None, *, now: int) -> FinalizeRefund | Refused:
    """By what the account shows that has the refund's PaymentIntent: one client for both requests."""
    if refund is None:
        return decide_refund(resolution, None, [], now=now)
    request = refund.request
    try:
        StripeGateway(stack.stripe).order_of(request.payment_intent_id)
    except NoSuchPaymentIntent:
        return Refused(f"Stripe has no {request.payment_intent_id}: is the key another account's?")
    found = StripeRefunds(stack.stripe).find_refunds(request.payment_intent_id, request.refund_id)
    return decide_refund(resolution, refund, found, now=now)
