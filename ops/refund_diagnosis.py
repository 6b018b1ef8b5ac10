"""What is wrong with an order's refunds, and what they wait for. Pure, as diagnosis.py."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onecharge.contract.refunds import RefundState, RefundStatus
from onecharge.orders.refunds import REFUND_OUTCOMES
from onecharge.payments.refunds.discrepancy import Discrepancy, find_discrepancy
from ops import schedule
from ops.findings import Cause, Finding, Move, broken, waits
from ops.refund_facts import RefundFacts
from publish_events.refunds import REFUND_EVENT_TYPES
from republish.waiting import DAY_SECONDS

if TYPE_CHECKING:
    from ops.facts import Facts

_GIVE_BACK = "notify the customer; request another refund of the amount through the API, or pay it back in another way"
_RESOLVE = "python -m ops review resolve ORDER --refund {} --as refund-made, or refund-failed, --reason …"
_EMIT_AGAIN = {RefundState.SUCCEEDED: "refund-made", RefundState.FAILED: "refund-failed"}
"""The resolution that says what the row says already."""
_RUN_RECONCILE = "aws lambda invoke --function-name $(ReconcileFunction) /dev/stdout"


def refund_findings(facts: "Facts") -> Iterator[Finding]:
    """What is found about each refund."""
    for refund in facts.refunds:
        yield from _at_stripe(facts, refund)
        yield from _waiting(facts, refund)
        yield from _ended(facts, refund)


def _at_stripe(facts: "Facts", refund: RefundFacts) -> Iterator[Finding]:
    """How the row and Stripe differ, as the refunds' event handler finds it."""
    found = refund.found
    if not found:
        return
    discrepancy = find_discrepancy(refund.row, found)
    stripe_ids = ", ".join(f"{each.stripe_refund_id} is {each.status}" for each in found)
    if discrepancy in (Discrepancy.RETURNED, Discrepancy.LOST_ROW):
        detail = f"{refund.refund_id}: {stripe_ids} ({found[0].failure_reason})"
        until = facts.now + schedule.RECONCILE_EVERY_SECONDS
        mend = f"{_GIVE_BACK}; the row follows, at once: {_RUN_RECONCILE}"
        yield broken(Cause.REFUND_RETURNED, detail, mend=mend, move=Move("reconcile, by Stripe's event", until))
    elif discrepancy is not Discrepancy.NONE:
        yield broken(Cause.REFUND_DIFFERS, f"{refund.refund_id}: {discrepancy}: {stripe_ids}", mend="decide at Stripe")


def _waiting(facts: "Facts", refund: RefundFacts) -> Iterator[Finding]:
    requested, row = refund.requested, refund.row
    is_open = row is None or row.state is RefundState.PENDING
    if requested is None or requested.status is not RefundStatus.PENDING or not is_open:
        return
    since = requested.requested_event().data.requested_at.timestamp()
    until = schedule.next_republication(since, now=facts.now, checkpoint=facts.republish)
    detail = f"{refund.refund_id}, {requested.amount_minor} {requested.currency}"
    letters = [letter for letter in facts.dead_letters if letter.queue == "RefundsDlq"]
    if row and row.key_spent_at is not None:
        detail += "; its key is spent: it is looked up, and not sent"
    if letters or facts.now - since > DAY_SECONDS:
        mend = (
            "python -m ops dlq list --queue RefundsDlq --messages"
            if letters
            else "see the log lines with this refund_id"
        )
        yield broken(Cause.REFUND_WAITS, detail, mend=mend, move=Move("republish publishes it again", until))
    else:
        yield waits(Cause.REFUND_WAITS, detail, move=Move("refund_charge; republish publishes it again", until))


def _ended(facts: "Facts", refund: RefundFacts) -> Iterator[Finding]:
    requested, row = refund.requested, refund.row
    if row is None or row.state is RefundState.PENDING:
        return
    if row.state is RefundState.NEEDS_REVIEW:
        detail = f"{refund.refund_id}: {row.failure_code}"
        yield broken(Cause.REFUND_NEEDS_REVIEW, detail, mend=_RESOLVE.format(refund.refund_id))
    elif row.state is RefundState.FAILED:
        yield broken(Cause.REFUND_FAILED, f"{refund.refund_id}: {row.failure_code}", mend=_GIVE_BACK)
    if requested is None:
        return
    outcome = REFUND_OUTCOMES[REFUND_EVENT_TYPES[row.state]]
    if requested.status is outcome.status or requested.status not in outcome.origins:
        return
    detail = f"{refund.refund_id}: the row is {row.state}, the request {requested.status}"
    emitted_at = max(row.finalized_at or 0, row.last_emitted_at or 0)
    if facts.now - emitted_at < schedule.OUTCOME_SECONDS:
        yield waits(Cause.REFUND_OUTCOME_NOT_APPLIED, detail, move=Move("publish_events, then update_order"))
    else:
        mend = "python -m ops dlq list: is its outcome in OrderUpdatesDlq?"
        if requested.status is not RefundStatus.PENDING and row.state in _EMIT_AGAIN:
            # republish asks only for refunds that are PENDING.
            resolution = f"--refund {refund.refund_id} --as {_EMIT_AGAIN[row.state]} --reason …"
            mend += f" Else python -m ops review resolve {facts.order_id} {resolution}"
        yield broken(Cause.REFUND_OUTCOME_NOT_APPLIED, detail, mend=mend)
