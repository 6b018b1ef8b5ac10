"""Decide about a refund that needs review, by what Stripe shows: `explain ORDER` says why it does.

    review ORDER RFD --as made     Stripe shows the frozen amount, or more
    review ORDER RFD --as failed   Stripe shows that it failed; or shows none, a day after the last attempt

FAILED frees the refund's amount, so that it can be refunded again: nothing may create this one any more. No worker
claims a refund that needs review, and Stripe executes what it has received within a day or never (refund_rules.py).
The write is refused if the row has changed since it was read. The row keeps who decided it, and why.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from onecharge.contract.refunds import RefundState
from onecharge.payments.refund_changes import Changes
from onecharge.payments.refund_rows import RefundStore
from onecharge.payments.refund_rules import SPENT_KEY_SECONDS, FinalizeRefund, Refund, StripeRefund
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.stripe_responses import ResponseKind
from ops.connection import Stack
from ops.errors import ExitStatus
from ops.output import Report

STATES = {"made": RefundState.SUCCEEDED, "failed": RefundState.FAILED}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("order", metavar="ORDER", help="the order's id")
    parser.add_argument("refund", metavar="RFD", help="the refund's id")
    parser.add_argument("--as", dest="resolution", required=True, choices=STATES)
    parser.add_argument("--reason", required=True, help="why; it is kept on the row")


class RefundReviewStore(RefundStore):
    """The Refunds table for reviews."""

    def resolve(self, refund: Refund, final: FinalizeRefund, record: Mapping[str, str], *, now: int) -> bool:
        """Write the outcome and the record; False if the row has changed since."""
        changes = (
            self._final_changes(final, now) | Changes.to({"review": record}) | Changes(values={"was": refund.state})
        )
        # A restored row may have the same revision, and another state.
        return self._write_if_unchanged(refund, changes, now=now, condition="#state = :was")


class Refused(Exception):
    """It cannot be decided like this now. The text says why."""


def run(stack: Stack, arguments: Namespace) -> Report:
    """Read the row, then Stripe, and write on the row's revision. Raises stripe.StripeError, LookupInconclusive."""
    store = RefundReviewStore(stack.dynamodb, stack.resource("RefundsTable"))
    refund, now = store.read(arguments.order, arguments.refund), int(time.time())
    try:
        final = _decided(stack, STATES[arguments.resolution], refund, now=now)
    except Refused as refused:
        return _report(arguments, f"refused: {refused}", done=False)
    if refund is None or not arguments.yes:
        return _report(arguments, f"would write {final.state}; --yes does it", done=False)
    record = {"by": stack.caller, "reason": " ".join(arguments.reason.split())}
    if not store.resolve(refund, final, record, now=now):
        return _report(arguments, "refused: the row has changed since it was read: check again", done=False)
    return _report(arguments, f"done: {final.state}", done=True)


def _report(arguments: Namespace, what: str, *, done: bool) -> Report:
    document: dict[str, Any] = {"order_id": arguments.order, "refund_id": arguments.refund, "done": done, "what": what}
    return Report(document, [f"{arguments.refund}: {what}"], ExitStatus.OK if done else ExitStatus.FOUND)


def _decided(stack: Stack, state: RefundState, refund: Refund | None, *, now: int) -> FinalizeRefund:
    """Another account shows no refund either, and decides nothing: Stripe has to have the refund's PaymentIntent."""
    if refund is None or refund.state is not RefundState.NEEDS_REVIEW:
        raise Refused("only a refund that is NEEDS_REVIEW is resolved")
    intent_id = refund.request.payment_intent_id
    failure = stack.payment_intents.retrieve(intent_id).failure
    if failure and failure.kind is ResponseKind.NOT_FOUND:
        raise Refused(f"Stripe has no {intent_id}: is the key another account's?")
    found = StripeGateway(stack.stripe).find_refunds(intent_id, refund.request.refund_id)
    return decide_refund(state, refund, found, now=now)


def decide_refund(state: RefundState, refund: Refund, found: Sequence[StripeRefund], *, now: int) -> FinalizeRefund:
    """What is written. `found` is complete: every refund of this id at Stripe. Raises Refused."""
    shown = ", ".join(f"{each.stripe_refund_id} is {each.status}" for each in found) or "no refund of this id"
    returned = [each for each in found if each.has_failed]
    if state is RefundState.SUCCEEDED:
        made = [each for each in found if each.status in ("succeeded", "pending")]
        if sum(each.amount_minor for each in made) < refund.request.amount_minor:
            raise Refused(f"Stripe shows {shown}: less is made than was asked for; make the rest there, of this id")
        return FinalizeRefund(state, made[0].stripe_refund_id)
    if len(returned) != len(found):
        raise Refused(f"Stripe shows {shown}: a refund that may give money back is not failed")
    if not found and now - (refund.finalized_at or now) < SPENT_KEY_SECONDS:
        raise Refused("Stripe shows none, and may still execute what was sent: wait a day from the last attempt")
    code = (returned[0].failure_reason or returned[0].status) if returned else "never made"
    return FinalizeRefund(state, returned[0].stripe_refund_id if returned else None, code)
