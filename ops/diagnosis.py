"""What is wrong with an order, and what it waits for: facts ─► findings. Pure: no clock, no I/O.

It asks the product's rules: which outcome an order takes (onecharge.orders.transitions), what is held and what follows
from a PaymentIntent (charge_rules.py), how a row and Stripe differ (sync_rules.py), and when what waits is looked at
next (schedule.py). findings.py has the table of causes.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from onecharge.contract.events import PAYMENT_EVENT_TYPES
from onecharge.contract.money import as_money
from onecharge.contract.refunds import REFUND_EVENT_TYPES, RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refunds import REFUND_OUTCOMES
from onecharge.orders.republication import DAY_SECONDS
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import OUTCOMES, WAITING
from onecharge.payments.answers import ANSWERS
from onecharge.payments.charge_rules import Finalize, Release, StripeIntent, decide, is_held
from onecharge.payments.refund_rules import Refund, alarm_of_pending
from onecharge.payments.rows import UNPAID, Payment
from onecharge.payments.sync_refund_rules import RefundDiscrepancy, find_refund_discrepancy
from onecharge.payments.sync_rules import find_difference
from onecharge.runtime.alarms import Cause
from ops import schedule
from ops.facts import Facts, IntentFacts, RefundFacts
from ops.findings import EMIT_AGAIN, Diagnosis, Finding, Move, Severity, broken, waits
from ops.output import time_of


def diagnose(facts: Facts) -> list[Finding]:
    """Everything that is found: what is broken first, then what is waited for."""
    found = [finding for rule in RULES for finding in rule(facts)]
    if not found:
        status = facts.order.status if facts.order else None
        cause = Diagnosis.DECLINED if status is OrderStatus.PAYMENT_DECLINED else Diagnosis.ENDED
        found = [Finding(cause=cause, severity=Severity.FINE, detail=f"the order is {status}")]
    named = [replace(each, fix=_with_names(each.fix, facts) if each.fix else None) for each in found]
    return sorted(named, key=lambda finding: -finding.severity.value)


def _with_names(fix: str, facts: Facts) -> str:
    """The command with the names of this stack: `$(RepublishFunction)` is a logical id."""
    return re.sub(r"\$\((\w+)\)", lambda found: facts.names.get(found[1], found[1]), fix).replace(
        "python -m ops", facts.command
    )


# ---------------------------------------------------------------- is it there, can it be read


def _existence(facts: Facts) -> Iterator[Finding]:
    if facts.order_error is not None:
        yield broken(Diagnosis.ORDER_UNREADABLE, facts.order_error)
    elif facts.order is None and (facts.payment or facts.stripe.intents):
        row = [f"the row is {facts.payment.state}"] if facts.payment else []
        intents = [f"{each.intent.payment_intent_id} is {each.intent.status}" for each in facts.stripe.intents]
        yield broken(Diagnosis.ORDER_LOST, "; ".join([*row, *intents]))
    elif facts.order is None:
        yield broken(Diagnosis.NO_SUCH_ORDER)


def _seam(facts: Facts) -> Iterator[Finding]:
    """Order and row are of one order, and the row is what the order has seen, or newer."""
    order, payment = facts.order, facts.payment
    if order is None or payment is None:
        return
    if order.money_differs_from(payment.request) and order.status is not OrderStatus.CANCELED:
        of_row = f"the payment {as_money(payment.request.amount_minor, payment.request.currency)}, {payment.state}"
        yield broken(Diagnosis.OTHER_ORDER, f"the order is {as_money(order.amount_minor, order.currency)}, {of_row}")
    elif order.status is OrderStatus.CANCELED and payment.state is PaymentState.SUCCEEDED:
        if payment.amount_refunded_minor < payment.request.amount_minor:
            yield broken(Diagnosis.MONEY_DIFFERS, "the order is CANCELED, its payment SUCCEEDED and not refunded")
    elif payment.revision < order.payment_revision:
        seen = f"its revision is {payment.revision}, the order has seen {order.payment_revision}"
        yield broken(Diagnosis.ROW_OLDER, seen)


def _stripe(facts: Facts) -> Iterator[Finding]:
    failure, row = facts.stripe.failure, facts.payment
    if not facts.stripe.was_asked:
        return
    if failure is not None:
        is_ours = ANSWERS[failure.kind].charge_alarm
        cause = Diagnosis.STRIPE_KEY_REFUSED if is_ours else Diagnosis.STRIPE_UNAVAILABLE
        yield broken(cause, f"{failure.kind}" + (f": {failure.message}" if failure.message else ""))
    elif row and row.payment_intent_id and facts.stripe.of(row.payment_intent_id) is None:
        yield broken(Diagnosis.PAYMENT_INTENT_UNKNOWN, row.payment_intent_id, order_id=facts.order_id)
    elif not facts.stripe.is_complete and (row is None or row.payment_intent_id is None):
        yield broken(Diagnosis.LOOKUP_INCOMPLETE, order_id=facts.order_id)


def _dead_letters(facts: Facts) -> Iterator[Finding]:
    for letter in facts.dead_letters:
        detail = f"{letter.dlq}: {letter.event_type or 'no event'}: {letter.reason}"
        yield broken(Diagnosis.DEAD_LETTER, detail, message_id=letter.message_id)


def _unread(facts: Facts) -> Iterator[Finding]:
    if _is_waiting(facts):
        for each in facts.unread:
            yield broken(Diagnosis.NOT_READ, f"{each.source}: mapping {each.uuid}", uuid=each.uuid)


def _is_waiting(facts: Facts) -> bool:
    """Whether the order waits, or one of its refunds."""
    is_order = facts.order is not None and facts.order.status in WAITING
    return is_order or any(each.requested and each.requested.status is RefundState.PENDING for each in facts.refunds)


def _held(facts: Facts) -> Iterator[Finding]:
    payment = facts.payment
    if payment is not None and is_held(payment, facts.now):
        began_at = payment.request.placed_at if payment.released_at is None else payment.released_at
        which = "placed" if payment.released_at is None else "released"
        yield broken(Diagnosis.HELD, f"{which} {time_of(began_at)}", order_id=facts.order_id)


# ---------------------------------------------------------------- the order waits, and no row answers


def _unclaimed(facts: Facts) -> Iterator[Finding]:
    """No worker has claimed the current attempt, or taken the cancellation."""
    order, payment = facts.order, facts.payment
    if order is None or order.status not in WAITING or not _is_unclaimed(facts, order):
        return
    since = order.waiting_since.timestamp()
    again = _republication(facts, since, "republish publishes it again")
    if payment is None and facts.stripe.intents:
        first = facts.stripe.intents[0].intent
        yield broken(Diagnosis.ROW_LOST, f"{first.payment_intent_id} is {first.status}", again)
        return
    if any(letter.dlq == "PaymentsDlq" for letter in facts.dead_letters):
        return  # Its message is there, and said to be.
    if facts.now - since < schedule.OUTCOME_SECONDS:
        yield waits(Diagnosis.NOT_CLAIMED_YET, "", Move("publish_events, then charge_order", again.until))
    else:
        yield broken(Diagnosis.NOT_CLAIMED, "", again)


def _is_unclaimed(facts: Facts, order: StoredOrder) -> bool:
    payment = facts.payment
    if payment is None:
        return True
    is_earlier = payment.attempt < order.attempt or order.status is OrderStatus.CANCELING
    is_unpaid = payment.state in UNPAID and payment.cancel_requested_at is None
    return is_earlier and is_unpaid and facts.now >= payment.lease_expires_at


# ---------------------------------------------------------------- the row is unfinished


def _unfinished(facts: Facts) -> Iterator[Finding]:
    """The row is PENDING, or is to be canceled: a message still claims it, or none does."""
    payment, order = facts.payment, facts.order
    if payment is None or payment.state not in UNPAID or is_held(payment, facts.now):
        return
    is_canceling = payment.cancel_requested_at is not None
    own = facts.stripe.of(payment.payment_intent_id)
    if not (is_canceling or payment.state is PaymentState.PENDING) or (own and _differs_from(facts, own.intent)):
        return
    if facts.now < payment.lease_expires_at:
        yield waits(Diagnosis.IN_PROGRESS, "", Move("the lease's owner", payment.lease_expires_at))
        return
    detail = "; ".join(filter(None, _seen_of(facts, payment, own)))
    if facts.now < schedule.unattended_at(payment):
        delivered_at = schedule.next_delivery(payment, facts.hidden_seconds)
        cause = Diagnosis.CANCELING if is_canceling else Diagnosis.BACKING_OFF
        yield waits(cause, detail, Move("charge_order, when its message is delivered again", delivered_at))
    elif order is None or order.status not in WAITING:
        yield broken(Diagnosis.ABANDONED, detail, fix="the order does not wait: see what else is found")
    else:
        since = order.waiting_since.timestamp()
        again = _republication(facts, since, "republish publishes it again")
        yield broken(Diagnosis.OVERDUE if facts.now - since > DAY_SECONDS else Diagnosis.ABANDONED, detail, again)


def _seen_of(facts: Facts, payment: Payment, own: IntentFacts | None) -> Iterator[str]:
    """What is known of an unfinished row: how its last delivery ended, and what the next one decides."""
    if payment.cancel_requested_at is not None:
        yield f"its cancellation was requested {time_of(payment.cancel_requested_at)}"
    if payment.lease_owner is not None:
        yield "the last worker died with the lease, and stored no result"
    if message := facts.row.get("stripe_message"):
        yield f"Stripe said: {message}"
    if own:
        step = decide(payment, own.intent, is_answered=False)
        then = f": the row becomes {step.state}" if isinstance(step, Finalize) else ""
        yield f"{own.intent.payment_intent_id} is {own.intent.status}{then}"


def _republication(facts: Facts, since: float, mover: str) -> Move:
    return Move(mover, schedule.next_republication(since, facts.republish))


# ---------------------------------------------------------------- row and Stripe

_CAUSES = {Cause.MONEY_DIFFERS: Diagnosis.MONEY_DIFFERS, Cause.ROW_LOST: Diagnosis.ROW_LOST}
"""Differences with a cause of their own. sync itself corrects the others, and what they say tells how."""


def _differences(facts: Facts) -> Iterator[Finding]:
    succeeded = [each.intent.payment_intent_id for each in facts.stripe.succeeded if not each.is_returned]
    if len(succeeded) > 1:
        yield broken(Diagnosis.PAID_TWICE, ", ".join(succeeded))
    order = facts.order
    is_claimed_later = facts.payment is None and order is not None and order.status in WAITING
    for each in facts.stripe.intents:
        is_second = len(succeeded) > 1 and each.intent.payment_intent_id in succeeded
        if not is_second and not is_claimed_later and (found := _differs_from(facts, each.intent)):
            yield found


def _differs_from(facts: Facts, intent: StripeIntent) -> Finding | None:
    """How a PaymentIntent differs from the row: as sync finds it, and as a worker would."""
    payment, shown = facts.payment, f"{intent.payment_intent_id} is {intent.status}"
    shown += f", {as_money(intent.amount_minor, intent.currency)}; "
    shown += f"the row is {payment.state}" if payment else "there is no row"
    is_own = payment is not None and payment.payment_intent_id == intent.payment_intent_id
    if payment and is_own and payment.state is PaymentState.PENDING:
        step = decide(payment, intent, is_answered=False)
        if isinstance(step, Release) and step.alarm:
            return broken(Diagnosis.MONEY_DIFFERS, f"{shown}: {step.why}")
        if facts.now < schedule.unattended_at(payment):
            return None  # The next delivery continues from what Stripe shows.
    seconds = facts.requires_action_seconds
    found = find_difference(payment, intent, shop=facts.shop, now=facts.now, requires_action_seconds=seconds)
    if found is None:
        return None
    detail = f"{shown}: {found.says}"
    if found.alarm in _CAUSES and not (found.changes or found.recovers):
        return broken(_CAUSES[found.alarm], detail, fix=Diagnosis.MONEY_DIFFERS.fix)
    if found.alarm in _CAUSES:
        return broken(_CAUSES[found.alarm], detail, _reading(facts))
    at_stripe = facts.stripe.of(intent.payment_intent_id)
    due_at = _happened_at(at_stripe) if at_stripe else 0
    if found.expires and payment:
        due_at = (payment.finalized_at or payment.claimed_at) + seconds
    due_at += schedule.EVENT_SECONDS
    if facts.now < due_at:
        return waits(Diagnosis.STRIPE_DIFFERS, detail, Move("the webhook, or reconcile", due_at))
    return broken(Diagnosis.STRIPE_DIFFERS, detail, _reading(facts))


def _reading(facts: Facts) -> Move:
    return Move("reconcile, by Stripe's event", schedule.next_reading(facts.reconcile))


def _happened_at(found: IntentFacts) -> int:
    """When the PaymentIntent last changed, as far as its objects say."""
    objects: list[Any] = [*found.charges, *found.refunds, *found.disputes]
    return max([found.canceled_at or 0, *(int(each.created) for each in objects)])


# ---------------------------------------------------------------- the row has an outcome


def _outcome(facts: Facts) -> Iterator[Finding]:
    """The order should have the outcome that the row has: as update_order moves it."""
    order, payment = facts.order, facts.payment
    if order is None or payment is None or order.money_differs_from(payment.request):
        return
    event_type = PAYMENT_EVENT_TYPES.get(payment.state)
    if event_type is None or not OUTCOMES[event_type].applies(order, payment.attempt):
        return
    detail = f"the row is {payment.state} since {time_of(payment.finalized_at or 0)}, the order {order.status}"
    if payment.attempt > order.attempt:
        detail += f"; the row is at attempt {payment.attempt}, the order at {order.attempt}: it was restored"
    # republish asks only for what waits.
    mover = "republish asks again, and the row emits its outcome again"
    again = _republication(facts, order.waiting_since.timestamp(), mover) if order.status in WAITING else None
    if _is_on_its_way(facts, payment.finalized_at, payment.last_emitted_at):
        until = again.until if again else None
        yield waits(Diagnosis.OUTCOME_ON_ITS_WAY, detail, Move("publish_events, then update_order", until))
    else:
        fix = None if again else EMIT_AGAIN
        yield broken(Diagnosis.OUTCOME_NOT_APPLIED, detail, again, fix=fix, order_id=order.order_id)


def _is_on_its_way(facts: Facts, finalized_at: int | None, emitted_at: int | None) -> bool:
    """Whether an outcome was emitted so recently that it may still be applied."""
    return facts.now - max(finalized_at or 0, emitted_at or 0) < schedule.OUTCOME_SECONDS


def _authentication(facts: Facts) -> Iterator[Finding]:
    payment = facts.payment
    if payment is None or payment.state is not PaymentState.REQUIRES_ACTION or payment.cancel_requested_at is not None:
        return
    own = facts.stripe.of(payment.payment_intent_id)
    if own and _differs_from(facts, own.intent):
        return
    until = (payment.finalized_at or payment.claimed_at) + facts.requires_action_seconds
    move = Move("the customer; then reconcile", until + schedule.RECONCILE_EVERY_SECONDS)
    detail = f"{payment.payment_intent_id}; after that it is canceled, and can be ordered again"
    yield waits(Diagnosis.AUTHENTICATION_AWAITED, detail, move)


# ---------------------------------------------------------------- afterwards, and around it


def _disputes(facts: Facts) -> Iterator[Finding]:
    disputes = [(dispute, each.intent) for each in facts.stripe.intents for dispute in each.disputes]
    for dispute, intent in disputes:
        if dispute.status.endswith("needs_response"):
            until = getattr(getattr(dispute, "evidence_details", None), "due_by", None)
            detail = f"{dispute.id}: {dispute.reason}, {as_money(dispute.amount, intent.currency)}, {dispute.status}"
            yield broken(Diagnosis.DISPUTED, detail, Move("you", until))
    stored = facts.payment.dispute if facts.payment else None
    if not disputes and stored and stored.needs_response:
        yield broken(Diagnosis.DISPUTED, f"the row says: {stored.dispute_id} is {stored.status}")


def _jobs(facts: Facts) -> Iterator[Finding]:
    """A scheduled job that the order waits for does not run."""
    payment, late = facts.payment, facts.now - schedule.LATE_SECONDS
    if _is_waiting(facts) and facts.republish is not None and facts.republish.round_at < late:
        detail = f"republish began its last round {time_of(facts.republish.round_at)}"
        yield broken(Diagnosis.JOB_STOPPED, detail, function="RepublishFunction")
    is_unfinished = payment is not None and payment.state in (PaymentState.PENDING, PaymentState.REQUIRES_ACTION)
    if is_unfinished and facts.reconcile is not None and facts.reconcile.since < late:
        detail = f"reconcile has read Stripe's events until {time_of(facts.reconcile.since)}"
        yield broken(Diagnosis.JOB_STOPPED, detail, function="ReconcileFunction")


# ---------------------------------------------------------------- refunds


def _refunds(facts: Facts) -> Iterator[Finding]:
    for refund in facts.refunds:
        yield from _refund_at_stripe(facts, refund)
        if refund.row is None or refund.row.state is RefundState.PENDING:
            yield from _refund_waits(facts, refund)
        else:
            yield from _refund_ended(facts, refund, refund.row)


def _refund_at_stripe(facts: Facts, refund: RefundFacts) -> Iterator[Finding]:
    """How the row and Stripe differ, as the payment service finds it from an event."""
    discrepancy = find_refund_discrepancy(refund.row, refund.found)
    shown = ", ".join(f"{each.stripe_refund_id} is {each.status}" for each in refund.found)
    if discrepancy in (RefundDiscrepancy.RETURNED, RefundDiscrepancy.LOST_ROW):
        detail = f"{refund.refund_id}: {shown} ({refund.found[0].failure_reason})"
        yield broken(Diagnosis.REFUND_RETURNED, detail, _reading(facts))
    elif discrepancy is not RefundDiscrepancy.NONE:
        yield broken(Diagnosis.REFUND_DIFFERS, f"{refund.refund_id}: {discrepancy}: {shown}")


def _refund_waits(facts: Facts, refund: RefundFacts) -> Iterator[Finding]:
    requested = refund.requested
    if requested is None or requested.status is not RefundState.PENDING:
        return
    since = requested.requested_event().data.requested_at.timestamp()
    again = _republication(facts, since, "refund_charge; republish publishes it again")
    detail = f"{refund.refund_id}, {as_money(requested.amount_minor, requested.currency)}"
    if refund.row and refund.row.sending_stopped_at is not None:
        detail += "; its key is spent: it is looked up, and not sent"
    if facts.now - since > DAY_SECONDS:
        yield broken(Diagnosis.REFUND_WAITS, detail, again)
    else:
        yield waits(Diagnosis.REFUND_WAITS, detail, again)


def _refund_ended(facts: Facts, refund: RefundFacts, row: Refund) -> Iterator[Finding]:
    requested = refund.requested
    order_id, refund_id = facts.order_id, refund.refund_id
    if row.state is RefundState.NEEDS_REVIEW:
        yield broken(
            Diagnosis.REFUND_NEEDS_REVIEW, f"{refund_id}: {row.failure_code}", order_id=order_id, refund_id=refund_id
        )
    elif row.state is RefundState.FAILED:
        yield broken(Diagnosis.REFUND_FAILED, f"{refund_id}: {row.failure_code}")
    elif alarm_of_pending(row.pending_reason):
        yield broken(Diagnosis.REFUND_HELD, f"{refund_id}: {row.pending_reason}")
    if requested is None:
        return
    outcome = REFUND_OUTCOMES[REFUND_EVENT_TYPES[row.state]]
    if requested.status is outcome.status or requested.status not in outcome.origins:
        return
    detail = f"{refund_id}: the row is {row.state}, the request {requested.status}"
    if _is_on_its_way(facts, row.finalized_at, row.last_emitted_at):
        yield waits(Diagnosis.REFUND_OUTCOME_NOT_APPLIED, detail, Move("publish_events, then update_order"))
        return
    fix = Diagnosis.REFUND_OUTCOME_NOT_APPLIED.fix
    if requested.status is not RefundState.PENDING:
        # republish asks only for refunds that are PENDING.
        fix += f" Else {EMIT_AGAIN}"
    yield broken(Diagnosis.REFUND_OUTCOME_NOT_APPLIED, detail, fix=fix, order_id=order_id, refund_id=refund_id)


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    *(_existence, _seam, _stripe, _dead_letters, _unread, _held),
    *(_differences, _unclaimed, _unfinished, _authentication, _outcome),
    *(_disputes, _refunds, _jobs),
)
"""In the order in which a person would check."""
