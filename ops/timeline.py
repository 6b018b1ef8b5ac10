"""What happened to one order, in one sequence, whoever knows it. Pure.

Within a second the order of the lines is the order of the data flow: order, payment, Stripe, DLQ.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from onecharge.contract.states import PaymentState
from ops.facts import Facts, IntentFacts
from ops.refund_timeline import refund_moments
from ops.review_store import RECORD


@dataclass(frozen=True)
class Moment:
    """Something that happened, or will."""

    at: int
    """Epoch seconds."""
    where: str
    """orders, payments, stripe, refunds, or a DLQ."""
    what: str


def timeline(facts: Facts) -> list[Moment]:
    """Everything that has a time, the earliest first."""
    moments = [*_order(facts), *_payment(facts)]
    for each in facts.stripe.intents:
        moments += _intent(each)
    moments += [Moment(at, where, what) for at, where, what in refund_moments(facts)]
    for letter in facts.dead_letters:
        what = f"{letter.event_type or 'a message that is no event'} was sent here: {letter.reason or 'by SQS or SNS'}"
        moments.append(Moment(letter.sent_at, letter.queue, what))
    return sorted(moments, key=lambda moment: moment.at)


def _order(facts: Facts) -> Iterator[Moment]:
    order = facts.order
    if order is None:
        return
    yield Moment(_epoch(order.placed_at), "orders", f"placed: {order.amount_minor} {order.currency}")
    if order.attempt_placed_at is not None:
        what = f"attempt {order.attempt} was made, with {order.payment_method}"
        yield Moment(_epoch(order.attempt_placed_at), "orders", what)
    if order.cancel_requested_at is not None:
        yield Moment(_epoch(order.cancel_requested_at), "orders", "its cancellation was requested")


def _payment(facts: Facts) -> Iterator[Moment]:
    payment, row = facts.payment, facts.row
    if payment is None:
        return
    for name, value in row.items():
        if name.startswith("attempt_claimed_at_"):
            attempt = name.rpartition("_")[2]
            method = row.get(f"payment_method_{attempt}", "")
            yield Moment(int(value), "payments", f"attempt {attempt} was first claimed, with {method}")
    if payment.claimed_at not in {value for name, value in row.items() if name.startswith("attempt_claimed_at_")}:
        yield Moment(payment.claimed_at, "payments", f"last claimed, for attempt {payment.attempt}")
    if payment.cancel_requested_at is not None:
        yield Moment(payment.cancel_requested_at, "payments", "its cancellation was requested: nothing is confirmed")
    if payment.refused_at is not None:
        yield Moment(payment.refused_at, "payments", "Stripe refuses the request since then")
    if payment.finalized_at is not None and payment.state is not PaymentState.PENDING:
        code = row.get("decline_code")
        what = f"attempt {payment.attempt} became {payment.state}" + (f": {code}" if code else "")
        yield Moment(payment.finalized_at, "payments", what)
    if payment.last_emitted_at is not None:
        yield Moment(payment.last_emitted_at, "payments", "its outcome was emitted again")
    for name, review in row.items():
        if name.startswith(RECORD):
            what = f"resolved as {review['resolution']} by {review['by']}: {review['reason']}"
            yield Moment(int(review["at"]), "review", what)


def _intent(each: IntentFacts) -> Iterator[Moment]:
    intent = each.intent
    name = f"{intent.payment_intent_id} (generation {intent.generation})"
    yield Moment(each.created, "stripe", f"{name} was created: {intent.amount_minor} {intent.currency}")
    for charge in each.charges:
        why = f": {charge.failure_code}" if charge.failure_code and charge.status == "failed" else ""
        what = f"{charge.charge_id} of {intent.payment_intent_id} {charge.status}{why}, {charge.amount_minor}"
        yield Moment(charge.created, "stripe", what)
    if each.canceled_at is not None:
        yield Moment(each.canceled_at, "stripe", f"{name} was canceled: {intent.cancellation_reason or 'no reason'}")
    for refund in each.refunds:
        whose = f" ({refund.refund_id})" if refund.refund_id else " (made by hand)"
        why = f", {refund.failure_reason}" if refund.failure_reason else ""
        what = f"{refund.stripe_refund_id}{whose} of {refund.amount_minor} is {refund.status}{why}"
        yield Moment(refund.created, "stripe", what)
    for dispute in each.disputes:
        what = f"{dispute.dispute_id} of {dispute.amount_minor}, {dispute.reason}, is {dispute.status}"
        yield Moment(dispute.created, "stripe", what)


def _epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())
