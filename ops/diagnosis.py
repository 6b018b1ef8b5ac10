"""What is wrong with an order, and what it waits for: facts ─► findings. Pure: no clock, no I/O.

It asks the product's rules: which outcome an order takes (onecharge.orders.transitions), how a row and Stripe differ
(sync_rules.py), what follows from a PaymentIntent (charge_rules.py), and when what waits is looked at next
(schedule.py). findings.py has the table of causes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from onecharge.contract.money import as_money
from onecharge.contract.refunds import REFUND_EVENT_TYPES, RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refunds import REFUND_OUTCOMES
from onecharge.orders.republication import DAY_SECONDS
from onecharge.orders.transitions import WAITING
from onecharge.payments.after_charge import CLOSED_DISPUTES
from onecharge.payments.answers import ANSWERS
from onecharge.payments.charge_rules import (
    UNPAID_STATES,
    ConfirmResult,
    Finalize,
    Payment,
    StripeIntent,
    decide,
)
from onecharge.payments.reconcile_checkpoint import ROUND_OVERDUE_SECONDS
from onecharge.payments.refund_rules import Refund, alarm_of_pending
from onecharge.payments.sync_rules import Discrepancy, RefundDiscrepancy, find_discrepancy, find_refund_discrepancy
from onecharge.payments.time_bounds import REFUSED_SECONDS
from ops import schedule
from ops.facts import Facts, RefundFacts
from ops.findings import EMIT_AGAIN, REFUND_BY_HAND, Diagnosis, Finding, Move, Severity, broken, waits
from ops.output import time_of
from ops.resolutions import STUCK_IF_GONE, has_outcome_for


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
    if order.money_differs_from(payment) and order.status is not OrderStatus.CANCELED:  # Else a person has ended it.
        of_row = f"the payment {as_money(payment.amount_minor, payment.currency)}, {payment.state}"
        yield broken(Diagnosis.OTHER_ORDER, f"the order is {as_money(order.amount_minor, order.currency)}, {of_row}")
    elif payment.revision < order.payment_revision:
        seen = f"its revision is {payment.revision}, the order has seen {order.payment_revision}"
        yield broken(Diagnosis.ROW_OLDER, seen)


def _stripe(facts: Facts) -> Iterator[Finding]:
    failure = facts.stripe.failure
    if not facts.stripe.was_asked:
        return
    if failure is not None:
        is_ours = ANSWERS[failure.kind].charge_alarm
        cause = Diagnosis.STRIPE_KEY_REFUSED if is_ours else Diagnosis.STRIPE_UNAVAILABLE
        yield broken(cause, f"{failure.kind}" + (f": {failure.message}" if failure.message else ""))
    elif not facts.stripe.is_complete:
        yield broken(Diagnosis.LOOKUP_INCOMPLETE)
    elif (row := facts.payment) and row.state in STUCK_IF_GONE and (named := row.payment_intent_id):
        shown = {each.intent.payment_intent_id for each in facts.stripe.intents}
        yield from [] if named in shown else [broken(Diagnosis.PAYMENT_INTENT_UNKNOWN, named)]


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


# ---------------------------------------------------------------- the order waits, and no row answers


def _unclaimed(facts: Facts) -> Iterator[Finding]:
    """No worker has claimed the current attempt, or taken the cancellation."""
    order, payment = facts.order, facts.payment
    if order is None or order.status not in WAITING or not _is_unclaimed(facts):
        return
    since = order.waiting_since.timestamp()
    again = _republication(facts, since, "republish publishes it again")
    if payment is None and facts.stripe.intents:
        first = facts.stripe.intents[0].intent
        harmless = "nothing is needed: a worker that finds the order's PaymentIntent charges nothing again"
        fix = None if facts.stripe.succeeded else harmless
        yield broken(Diagnosis.ROW_LOST, f"{first.payment_intent_id} is {first.status}", again, fix=fix)
        return
    if any(letter.dlq == "PaymentsDlq" for letter in facts.dead_letters):
        return  # Its message is there, and said to be.
    if facts.now - since < schedule.OUTCOME_SECONDS:
        yield waits(Diagnosis.NOT_CLAIMED_YET, "", Move("publish_events, then charge_order", again.until))
    else:
        yield broken(Diagnosis.NOT_CLAIMED, "", again)


def _is_unclaimed(facts: Facts) -> bool:
    order, payment = facts.order, facts.payment
    if payment is None or order is None:
        return True
    is_earlier = payment.attempt < order.attempt or order.status is OrderStatus.CANCELING
    return is_earlier and _may_be_charged(payment) and facts.now >= payment.lease_expires_at


def _may_be_charged(payment: Payment) -> bool:
    return payment.state in UNPAID_STATES and payment.cancel_requested_at is None


# ---------------------------------------------------------------- the row is unfinished


def _unfinished(facts: Facts) -> Iterator[Finding]:
    payment = facts.payment
    if payment is None or payment.state not in UNPAID_STATES or _is_decided_at_stripe(facts, payment):
        return
    if payment.is_overdue(facts.now) and payment.state is PaymentState.PENDING:
        since = max(payment.attempt_claimed_at, payment.cancel_requested_at or 0)
        yield broken(Diagnosis.OVERDUE, f"since {time_of(since)}")
    if payment.cancel_requested_at is not None:
        detail = f"requested {time_of(payment.cancel_requested_at)}"
        yield waits(Diagnosis.CANCELING, detail, _reconciliation(facts, "reconcile", visited=payment))
    elif payment.state is PaymentState.PENDING:
        yield _pending(facts, payment)


def _pending(facts: Facts, payment: Payment) -> Finding:
    """A row that is PENDING, and that a message still claims, or whose attempt Stripe has not decided."""
    if facts.now < payment.lease_expires_at:
        return waits(Diagnosis.IN_PROGRESS, "", Move("the lease's owner", payment.lease_expires_at))
    own, message = facts.stripe.of(payment.payment_intent_id), facts.row.get("stripe_message")
    seen = [
        "the last worker died with the lease, and stored no result" if payment.lease_owner is not None else "",
        f"{own.intent.payment_intent_id} is {own.intent.status}" if own else "",
        f"Stripe said: {message}" if message else "",
    ]
    detail = "; ".join(filter(None, seen))
    delivered_at = schedule.next_delivery(payment, facts.hidden_seconds)
    if payment.refused_at is not None:
        until = payment.refused_at + REFUSED_SECONDS + delivered_at - payment.claimed_at
        return broken(Diagnosis.REQUEST_REFUSED, detail, Move("charge_order", until))
    if facts.now < schedule.unattended_at(payment):
        delivery = Move("charge_order, when its message is delivered again", delivered_at)
        return waits(Diagnosis.BACKING_OFF, detail, delivery)
    if facts.order is None or facts.order.status not in WAITING:
        return broken(Diagnosis.ABANDONED, detail, fix="the order does not wait: see what else is found")
    again = _republication(facts, facts.order.waiting_since.timestamp(), "republish publishes it again")
    return broken(Diagnosis.ABANDONED, detail, again)


def _republication(facts: Facts, since: float, mover: str) -> Move:
    return Move(mover, schedule.next_republication(since, facts.republish))


def _reconciliation(facts: Facts, mover: str, *, visited: Payment | None = None) -> Move:
    """reconcile, by one of Stripe's events; or it visits the row, once that is unattended."""
    due_at = schedule.unattended_at(visited) if visited else 0
    return Move(mover, schedule.next_reconciliation(facts.reconcile, due_at=due_at))


def _is_decided_at_stripe(facts: Facts, payment: Payment) -> bool:
    own = facts.stripe.of(payment.payment_intent_id)
    return own is not None and any(True for _ in _of_own(facts, payment, own.intent))


# ---------------------------------------------------------------- row and Stripe

_CAUSES: Mapping[Discrepancy | str, Diagnosis] = {
    Discrepancy.PAID_TWICE: Diagnosis.PAID_TWICE,
    Discrepancy.PAID_AFTER_CANCEL: Diagnosis.PAID_AFTER_CANCEL,
    Discrepancy.MONEY_DIFFERS: Diagnosis.MONEY_DIFFERS,
    Discrepancy.REVERSED: Diagnosis.REVERSED,
    Discrepancy.LOST_ROW: Diagnosis.ROW_LOST,
    Discrepancy.WITHOUT_ROW: Diagnosis.ROW_LOST,
}
"""Those with a cause of their own. The payment service itself corrects the others, and its words say how."""


def _discrepancies(facts: Facts) -> Iterator[Finding]:
    payment = facts.payment
    succeeded = [each.intent.payment_intent_id for each in facts.stripe.succeeded if not each.is_returned]
    if len(succeeded) > 1:
        yield broken(Diagnosis.PAID_TWICE, ", ".join(succeeded), order_id=facts.order_id)
    elif succeeded and _is_paid_although_canceled(facts):
        yield broken(Diagnosis.PAID_AFTER_CANCEL, f"{succeeded[0]}; the row is SUCCEEDED", fix=REFUND_BY_HAND)
    for each in facts.stripe.intents:
        if payment is not None and each.intent.payment_intent_id == payment.payment_intent_id:
            yield from _of_own(facts, payment, each.intent)
        else:
            yield from _of_another(facts, each.intent)


def _is_paid_although_canceled(facts: Facts) -> bool:
    """Whether a canceled order's row is SUCCEEDED, as one of a lost order, or recovered: reconcile refunds neither."""
    order, payment = facts.order, facts.payment
    is_canceled = order is not None and order.status is OrderStatus.CANCELED
    return is_canceled and payment is not None and payment.state is PaymentState.SUCCEEDED


def _of_another(facts: Facts, intent: StripeIntent) -> Iterator[Finding]:
    discrepancy = _discrepancy(facts, intent)
    is_known = facts.payment is None and facts.order is not None and facts.order.status in WAITING
    if discrepancy in (Discrepancy.NONE, Discrepancy.PAID_TWICE) or is_known:
        return  # A canceled generation; found above; found as an order without a row.
    yield _differs(facts, intent, discrepancy)


def _of_own(facts: Facts, payment: Payment, intent: StripeIntent) -> Iterator[Finding]:
    """The row's own PaymentIntent: what a worker, or reconcile, would make of it."""
    discrepancy = _discrepancy(facts, intent)
    if intent.money_differs_from(payment.request):
        yield _differs(facts, intent, Discrepancy.MONEY_DIFFERS)
    elif payment.state is PaymentState.PENDING and facts.now < schedule.unattended_at(payment):
        return  # The next delivery continues from what Stripe shows.
    elif discrepancy is not Discrepancy.NONE:
        yield _differs(facts, intent, discrepancy)
    elif payment.state is PaymentState.PENDING:
        # As reconcile decides an unattended row.
        decision = decide(payment, intent, ConfirmResult.OF_ANOTHER_WORKER)
        if isinstance(decision, Finalize):
            code = f": {decision.code}" if decision.code else ""
            yield _differs(facts, intent, f"the row becomes {decision.state}{code}")


def _discrepancy(facts: Facts, intent: StripeIntent) -> Discrepancy:
    return find_discrepancy(facts.payment, intent, now=facts.now, requires_action_seconds=facts.requires_action_seconds)


def _differs(facts: Facts, intent: StripeIntent, how: Discrepancy | str) -> Finding:
    payment = facts.payment
    row = f"the row is {payment.state}" if payment else "there is no row"
    reason = f" as {intent.cancellation_reason or 'no reason'}" if intent.status == "canceled" else ""
    shown = f"{intent.payment_intent_id} is {intent.status}{reason}, {as_money(intent.amount_minor, intent.currency)}"
    if how is Discrepancy.MONEY_DIFFERS and payment:
        row = f"frozen are {as_money(payment.request.amount_minor, payment.request.currency)}"
    if how in (Discrepancy.MONEY_DIFFERS, Discrepancy.REVERSED):
        return broken(_CAUSES[how], f"{shown}; {row}")  # reconcile corrects the others.
    visited = payment if payment and payment.state is PaymentState.PENDING else None
    move = _reconciliation(facts, "reconcile, by Stripe's event or the row", visited=visited)
    if how in _CAUSES:
        return broken(_CAUSES[how], f"{shown}; {row}", move)
    read_at = _unread_charge_at(facts, intent) + schedule.EVENT_SECONDS
    if facts.now < read_at:
        return waits(Diagnosis.STRIPE_DIFFERS, f"{shown}; {row}; {how}", replace(move, until=read_at))
    return broken(Diagnosis.STRIPE_DIFFERS, f"{shown}; {row}; {how}", move)


def _unread_charge_at(facts: Facts, intent: StripeIntent) -> int:
    """When Stripe made the last charge whose event reconcile has not read; 0 without one."""
    found, read_until = facts.stripe.of(intent.payment_intent_id), facts.reconcile.since if facts.reconcile else 0
    charged_at = max((each.created for each in found.charges), default=0) if found else 0
    return charged_at if charged_at >= read_until else 0


# ---------------------------------------------------------------- the row has an outcome


def _outcome(facts: Facts) -> Iterator[Finding]:
    """The order should have the outcome that the row has: as update_order moves it."""
    order, payment = facts.order, facts.payment
    if order is None or payment is None or not has_outcome_for(order, payment) or order.money_differs_from(payment):
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
        yield broken(
            Diagnosis.OUTCOME_NOT_APPLIED, detail, again, fix=None if again else EMIT_AGAIN, order_id=order.order_id
        )


def _is_on_its_way(facts: Facts, finalized_at: int | None, emitted_at: int | None) -> bool:
    """Whether an outcome was emitted so recently that it may still be applied."""
    return facts.now - max(finalized_at or 0, emitted_at or 0) < schedule.OUTCOME_SECONDS


def _authentication(facts: Facts) -> Iterator[Finding]:
    payment = facts.payment
    if payment is None or payment.state is not PaymentState.REQUIRES_ACTION or _is_decided_at_stripe(facts, payment):
        return
    until = (payment.finalized_at or payment.claimed_at) + facts.requires_action_seconds
    move = Move("the customer; then reconcile", until + schedule.RECONCILE_EVERY_SECONDS)
    detail = f"{payment.payment_intent_id}; after that it is declined, and another card can be tried"
    yield waits(Diagnosis.AUTHENTICATION_AWAITED, detail, move)


def _review(facts: Facts) -> Iterator[Finding]:
    order, payment = facts.order, facts.payment
    is_needed = payment is not None and payment.state is PaymentState.NEEDS_REVIEW
    if order is not None and order.status is OrderStatus.NEEDS_REVIEW:
        # Else its payment ends it.
        is_needed |= payment is None or (_may_be_charged(payment) and not has_outcome_for(order, payment))
    is_ended = order is not None and order.status is OrderStatus.CANCELED  # By a person, without its payment.
    if is_ended or not is_needed:
        return
    reason = facts.row.get("decline_code") or "no reason is stored"
    message = facts.row.get("stripe_message")
    detail = f"reason: {reason}" + (f"; Stripe said: {message}" if message else "")
    yield broken(Diagnosis.NEEDS_REVIEW, detail, order_id=facts.order_id)


# ---------------------------------------------------------------- afterwards, and around it


def _disputes(facts: Facts) -> Iterator[Finding]:
    disputes = [(dispute, each.intent) for each in facts.stripe.intents for dispute in each.disputes]
    for dispute, intent in disputes:
        if dispute.status not in CLOSED_DISPUTES:
            until = getattr(getattr(dispute, "evidence_details", None), "due_by", None)
            detail = f"{dispute.id}: {dispute.reason}, {as_money(dispute.amount, intent.currency)}, {dispute.status}"
            yield broken(Diagnosis.DISPUTED, detail, Move("you", until))
    stored = facts.row.get("dispute_status")
    if not disputes and stored is not None and stored not in CLOSED_DISPUTES:
        yield broken(Diagnosis.DISPUTED, f"the row says: {stored}")
    if suspicion := facts.row.get("fraud_suspicion"):
        yield broken(Diagnosis.FRAUD_SUSPECTED, f"the row says: {suspicion}")


def _jobs(facts: Facts) -> Iterator[Finding]:
    """A scheduled job that the order waits for does not run."""
    payment, late = facts.payment, facts.now - ROUND_OVERDUE_SECONDS
    if _is_waiting(facts) and facts.republish is not None and facts.republish.round_at < late:
        detail = f"republish began its last round {time_of(facts.republish.round_at)}"
        yield broken(Diagnosis.JOB_STOPPED, detail, function="RepublishFunction")
    is_unfinished = payment is not None and payment.state in (PaymentState.PENDING, PaymentState.REQUIRES_ACTION)
    if is_unfinished and facts.reconcile is not None and facts.reconcile.round_completed_at < late:
        detail = f"reconcile completed its last round {time_of(facts.reconcile.round_completed_at)}"
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
        yield broken(Diagnosis.REFUND_RETURNED, detail, _reconciliation(facts, "reconcile, by Stripe's event"))
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
    if requested.status is not RefundState.PENDING and row.state is not RefundState.NEEDS_REVIEW:
        # republish asks only for refunds that are PENDING. This resolution says what the row says already.
        resolution = "refund-made" if row.state is RefundState.SUCCEEDED else "refund-failed"
        again = "python -m ops review resolve {order_id} --refund {refund_id}"
        fix += f" Else {again} --as {resolution} --reason …"
    yield broken(Diagnosis.REFUND_OUTCOME_NOT_APPLIED, detail, fix=fix, order_id=order_id, refund_id=refund_id)


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    *(_existence, _seam, _stripe, _dead_letters, _unread),
    *(_discrepancies, _unclaimed, _unfinished, _authentication, _outcome, _review),
    *(_disputes, _refunds, _jobs),
)
"""In the order in which a person would check."""
