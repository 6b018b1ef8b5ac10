"""What is wrong with an order, and what it waits for: facts ─► findings. Pure: no clock, no I/O.

    RULES   each checks one side of the order, and yields what it finds
      order and row     which outcome the order should have    onecharge.orders.transitions, publish_events.mapping
      row and Stripe    how they differ                        payments/charges/discrepancy.py, protocol.py
      what waits        who moves it next, at the latest when  schedule.py, republish/waiting.py, time_bounds.py

It decides nothing by rules of its own that the product has: it asks the product's.
"""

from collections.abc import Callable, Iterator, Mapping

from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.transitions import OUTCOMES, WAITING
from onecharge.payments.charges.discrepancy import Discrepancy, find_discrepancy
from onecharge.payments.charges.protocol import (
    CHARGE_RULES,
    CLOSED_STATES,
    UNPAID_STATES,
    ConfirmResult,
    Create,
    Finalize,
    FoundIntent,
    Payment,
    decide,
)
from onecharge.payments.time_bounds import REFUSED_SECONDS
from ops import schedule
from ops.clock import shown
from ops.facts import DeadLetter, Facts, IntentFacts, Source
from ops.findings import Cause, Finding, Move, Severity, broken, fine, waits
from ops.refund_diagnosis import refund_findings
from publish_events.mapping import PAYMENT_EVENT_TYPES
from reconcile.reconcile import ROUND_OVERDUE_SECONDS
from update_order.orders import CLOSED_DISPUTES

ORDERS, PAYMENTS = "OrdersTable", "PaymentsTable"
PAYMENTS_QUEUE, ORDER_UPDATES_QUEUE = "PaymentsQueue", "OrderUpdatesQueue"

RUN_REPUBLISH = "aws lambda invoke --function-name $(RepublishFunction) /dev/stdout"
RUN_RECONCILE = "aws lambda invoke --function-name $(ReconcileFunction) /dev/stdout"
EMIT_AGAIN = "python -m ops review resolve {order_id} --as retry --reason …"
REVIEW = "python -m ops review list; then python -m ops review resolve {order_id} --as … --reason …"
REFUND_SECOND = "refund the one that the row does not name, at Stripe"
REFUND_SECOND = "python -m ops review resolve {order_id} --as refund-second --reason …"


def diagnose(facts: Facts) -> list[Finding]:
    """Everything that is found: what is broken first, then what is waited for."""
    found = [finding for rule in RULES for finding in rule(facts)]
    if not found:
        found = [_ended(facts)]
    return sorted(found, key=lambda finding: -finding.severity.value)


# ---------------------------------------------------------------- is it there, can it be read


def _existence(facts: Facts) -> Iterator[Finding]:
    if facts.order_error is not None:
        yield broken(
            Cause.ORDER_UNREADABLE,
            facts.order_error,
            mend="correct the item: republish reports it in every round, and publishes it once it is valid",
        )
    elif facts.order is None and (facts.payment or facts.stripe.intents):
        mend = "restore the order's item from a backup of the Orders table (docs/runbook.md)"
        yield broken(Cause.ORDER_LOST, _names(facts), mend=mend)
    elif facts.order is None:
        yield broken(Cause.NO_SUCH_ORDER, mend="check the id, --stack and --region")


def _stripe(facts: Facts) -> Iterator[Finding]:
    failure = facts.stripe.failure
    if failure is not None:
        detail = f"{failure.kind}" + (f": {failure.message}" if failure.message else "")
        if CHARGE_RULES[failure.kind].alarm:
            mend = "put the right key into the stack's Stripe secret: the functions notice it within five minutes"
            yield broken(Cause.STRIPE_KEY_REFUSED, detail, mend=mend)
        else:
            mend = "wait: payments are retried, none fails; https://status.stripe.com"
            yield broken(Cause.STRIPE_UNAVAILABLE, detail, mend=mend)
    elif not facts.stripe.is_complete:
        yield broken(Cause.LOOKUP_INCOMPLETE, mend="run this again in an hour: then Stripe's search knows all of them")


def _dead_letters(facts: Facts) -> Iterator[Finding]:
    for letter in facts.dead_letters:
        cause = Cause.POISON if letter.reason else Cause.UNDELIVERED
        detail = f"{letter.queue}: {letter.event_type or 'no event'}: {letter.reason or 'no reason is attached'}"
        mend = f"once the cause is gone: {_redrive(letter)}"
        yield broken(cause, detail, mend=mend)


def _redrive(letter: DeadLetter) -> str:
    return f"python -m ops dlq redrive --message-id {letter.message_id} --yes"


def _failed_records(facts: Facts) -> Iterator[Finding]:
    for record in facts.failed_records:
        detail = f"{record.table}, since {record.since}: {record.reason}"
        mend = f"correct the item if it is wrong, then: python -m ops failed-records republish {record.key} --yes"
        yield broken(Cause.UNPUBLISHABLE, detail, mend=mend)


# ---------------------------------------------------------------- the order waits, and no row answers


def _unclaimed(facts: Facts) -> Iterator[Finding]:
    """No worker has claimed the present attempt."""
    order, payment = facts.order, facts.payment
    if order is None or order.status not in WAITING or not _is_unclaimed(facts):
        return
    since = order.waiting_since.timestamp()
    until = schedule.next_republication(since, now=facts.now, checkpoint=facts.republish)
    again = Move("republish publishes it again", until)
    if payment is None and facts.stripe.intents:
        first = facts.stripe.intents[0].intent
        detail = f"{first.payment_intent_id} is {first.status}"
        paid = facts.stripe.succeeded
        mend = "none is needed: a worker that finds the order's PaymentIntent charges nothing again"
        yield broken(Cause.ROW_LOST, detail, mend=RUN_RECONCILE if paid else mend, move=again)
        return
    if (stream := facts.source(ORDERS)) is not None and not stream.is_enabled:
        yield broken(Cause.NEVER_PUBLISHED, f"mapping {stream.uuid} is disabled", mend=_enable(stream), move=again)
    elif (queue := facts.source(PAYMENTS_QUEUE)) is not None and not queue.is_enabled:
        yield broken(Cause.QUEUE_NOT_READ, f"mapping {queue.uuid} is disabled", mend=_enable(queue))
    elif any(letter.queue == "PaymentsDlq" for letter in facts.dead_letters):
        return  # Its message is there, and said to be.
    elif any(record.table == ORDERS for record in facts.failed_records):
        return  # The same of its record.
    elif facts.now - since < schedule.OUTCOME_SECONDS:
        yield waits(Cause.NOT_CLAIMED_YET, "", Move("publish_events, then charge_order", until))
    else:
        yield broken(Cause.NOT_CLAIMED, _hint(facts), mend=RUN_REPUBLISH, move=again)


def _is_unclaimed(facts: Facts) -> bool:
    order, payment = facts.order, facts.payment
    if payment is None or order is None:
        return True
    is_earlier = payment.attempt < order.attempt and payment.state not in CLOSED_STATES
    return is_earlier and payment.cancel_requested_at is None and facts.now >= payment.lease_expires_at


def _hint(facts: Facts) -> str:
    streams = [facts.source(ORDERS), facts.source(PAYMENTS_QUEUE)]
    return "; ".join(f"{each.source}: {each.last_result}" for each in streams if each and "PROBLEM" in each.last_result)


# ---------------------------------------------------------------- the row is unfinished


def _unfinished(facts: Facts) -> Iterator[Finding]:
    payment = facts.payment
    if payment is None or payment.state not in UNPAID_STATES or _is_decided_at_stripe(facts, payment):
        return
    if payment.is_overdue(facts.now) and payment.state is PaymentState.PENDING:
        since = max(payment.attempt_claimed_at, payment.cancel_requested_at or 0)
        mend = "see what else is found; Stripe's answers are in the log lines with this order_id"
        yield broken(Cause.OVERDUE, f"since {shown(since)}", mend=mend)
    if payment.cancel_requested_at is not None:
        until = schedule.next_reconciliation(payment, facts.now)
        yield waits(Cause.CANCELING, f"requested {shown(payment.cancel_requested_at)}", move=Move("reconcile", until))
    elif payment.state is PaymentState.PENDING:
        yield _pending(facts, payment)


def _pending(facts: Facts, payment: Payment) -> Finding:
    """A row that is PENDING, and whose attempt Stripe has not decided."""
    own = facts.stripe.of(payment.payment_intent_id)
    message = facts.row.get("stripe_message")
    said = f"Stripe said: {message}" if message else ""
    if facts.now < payment.lease_expires_at:
        return waits(Cause.IN_PROGRESS, "", Move("the lease's owner", payment.lease_expires_at))
    delivery = Move("charge_order, when its message is delivered again", schedule.next_delivery(payment))
    if payment.refused_at is not None:
        until = payment.refused_at + REFUSED_SECONDS + schedule.next_delivery(payment) - payment.claimed_at
        mend = "correct what Stripe refuses, as it says; after an hour of retries the payment needs review"
        return broken(Cause.REQUEST_REFUSED, said, mend=mend, move=Move("charge_order", until))
    if own and own.intent.status == "processing":
        return waits(Cause.STRIPE_PROCESSING, own.intent.payment_intent_id, delivery)
    if schedule.is_unattended(payment, facts.now):
        return _abandoned(facts, payment, said)
    if payment.lease_owner is not None:
        detail = f"the lease expired {shown(payment.lease_expires_at)}"
        mend = "none is needed: the message is delivered again; see the log of charge_order for why it died"
        return broken(Cause.LEASE_OF_DEAD_WORKER, detail, mend=mend, move=delivery)
    return waits(Cause.BACKING_OFF, said, delivery)


def _abandoned(facts: Facts, payment: Payment, said: str) -> Finding:
    detail = "; ".join(filter(None, (f"last claimed {shown(payment.claimed_at)}", said)))
    if payment.lease_owner is not None:
        detail = f"the last worker died with the lease; {detail}"
    if facts.order is None or facts.order.status not in WAITING:
        return broken(Cause.ABANDONED, detail, mend="the order does not wait: see what else is found")
    since = facts.order.waiting_since.timestamp()
    until = schedule.next_republication(since, now=facts.now, checkpoint=facts.republish)
    cause = Cause.LEASE_OF_DEAD_WORKER if payment.lease_owner is not None else Cause.ABANDONED
    return broken(cause, detail, mend=RUN_REPUBLISH, move=Move("republish publishes it again", until))


def _is_decided_at_stripe(facts: Facts, payment: Payment) -> bool:
    own = facts.stripe.of(payment.payment_intent_id)
    return own is not None and any(True for _ in _of_own(facts, payment, own))


# ---------------------------------------------------------------- row and Stripe

_DISCREPANCIES: Mapping[Discrepancy, Cause] = {
    Discrepancy.LOST_ROW: Cause.ROW_LOST,
    Discrepancy.PAID: Cause.PAID_AT_STRIPE,
    Discrepancy.PAID_LATE: Cause.PAID_LATE,
    Discrepancy.PAID_TWICE: Cause.PAID_TWICE,
    Discrepancy.PAID_AFTER_CANCEL: Cause.PAID_AFTER_CANCEL,
    Discrepancy.OTHER_MONEY: Cause.OTHER_MONEY,
    Discrepancy.DECLINED: Cause.DECIDED_AT_STRIPE,
    Discrepancy.EXPIRED: Cause.AUTHENTICATION_OVERDUE,
    Discrepancy.CANCELED: Cause.DECIDED_AT_STRIPE,
    Discrepancy.REVERSED: Cause.REVERSED,
}
"""What the payment service itself calls it."""

_A_PERSON: Mapping[Cause, str] = {
    Cause.PAID_TWICE: REFUND_SECOND,
    Cause.PAID_AFTER_CANCEL: "reconcile refunds it by itself, if there is a refunds part; else refund it at Stripe",
    Cause.OTHER_MONEY: "find out who created or changed it at Stripe; refund it there, then resolve the review",
    Cause.REVERSED: "find out at Stripe why it is not succeeded: the API key may be another account's",
}
"""What no rule can correct; reconcile corrects the others."""


def _discrepancies(facts: Facts) -> Iterator[Finding]:
    payment = facts.payment
    succeeded = [each for each in facts.stripe.succeeded if not each.is_refunded]
    if len(succeeded) > 1:
        ids = ", ".join(each.intent.payment_intent_id for each in succeeded)
        yield broken(Cause.PAID_TWICE, ids, mend=_A_PERSON[Cause.PAID_TWICE].format(order_id=facts.order_id))
    for each in facts.stripe.intents:
        if payment is not None and each.intent.payment_intent_id == payment.payment_intent_id:
            yield from _of_own(facts, payment, each)
        else:
            yield from _of_another(facts, each.intent)


def _of_another(facts: Facts, intent: FoundIntent) -> Iterator[Finding]:
    discrepancy = _discrepancy(facts, intent)
    is_known = facts.payment is None and facts.order is not None and facts.order.status in WAITING
    if discrepancy in (Discrepancy.NONE, Discrepancy.PAID_TWICE) or is_known:
        return  # A canceled generation; found above; found as an order without a row.
    yield _differs(facts, intent, _DISCREPANCIES[discrepancy])


def _of_own(facts: Facts, payment: Payment, own: IntentFacts) -> Iterator[Finding]:
    """The row's own PaymentIntent: what a worker, or reconcile, would make of it."""
    intent = own.intent
    if intent.has_other_money(payment.request):
        yield _differs(facts, intent, Cause.OTHER_MONEY)
        return
    is_leased = payment.state is PaymentState.PENDING and facts.now < payment.lease_expires_at
    discrepancy = _discrepancy(facts, intent)
    if intent.status == "canceled" and payment.state in UNPAID_STATES and payment.cancel_requested_at is None:
        if not is_leased and payment.state is not PaymentState.DECLINED:
            yield _canceled_by_hand(facts, payment, own)
    elif discrepancy is not Discrepancy.NONE:
        yield _differs(facts, intent, _DISCREPANCIES[discrepancy])
    elif payment.state is PaymentState.PENDING and not is_leased and payment.claimed_at:
        # As reconcile decides an unattended row.
        decision = decide(payment, intent, ConfirmResult.OF_ANOTHER_WORKER)
        if isinstance(decision, Finalize) and intent.status != "processing":
            yield _differs(facts, intent, Cause.DECIDED_AT_STRIPE, f"it becomes {decision.state}")


def _canceled_by_hand(facts: Facts, payment: Payment, own: IntentFacts) -> Finding:
    reason = own.intent.cancellation_reason or "no reason"
    detail = f"{own.intent.payment_intent_id}, {reason}" + (f", {shown(own.canceled_at)}" if own.canceled_at else "")
    if payment.state is PaymentState.REQUIRES_ACTION:
        what = "reconcile: the attempt becomes DECLINED, and another card can be tried"
    elif isinstance(decide(payment, own.intent, ConfirmResult.UNANSWERED), Create):
        what = "charge_order creates the next generation, and charges it"
    else:
        what = "charge_order or reconcile: the order becomes CANCELED"
    until = schedule.next_reconciliation(payment, facts.now)
    mend = f"none is needed; at once: {RUN_RECONCILE}; to stop the order, cancel it through the API"
    return broken(Cause.CANCELED_AT_STRIPE, detail, mend=mend, move=Move(what, until))


def _discrepancy(facts: Facts, intent: FoundIntent) -> Discrepancy:
    return find_discrepancy(facts.payment, intent, now=facts.now, requires_action_seconds=facts.requires_action_seconds)


def _differs(facts: Facts, intent: FoundIntent, cause: Cause, also: str = "") -> Finding:
    money = f"{intent.amount_minor} {intent.currency}"
    row = f"the row is {facts.payment.state}" if facts.payment else "there is no row"
    frozen = facts.payment.request if facts.payment else None
    if cause is Cause.OTHER_MONEY and frozen:
        row = f"frozen are {frozen.amount_minor} {frozen.currency}"
    detail = "; ".join(filter(None, (f"{intent.payment_intent_id} is {intent.status}, {money}", row, also)))
    if cause in _A_PERSON:
        return broken(cause, detail, mend=_A_PERSON[cause].format(order_id=facts.order_id))
    until = facts.now + schedule.RECONCILE_EVERY_SECONDS
    if facts.payment and facts.payment.state is PaymentState.PENDING and cause is Cause.DECIDED_AT_STRIPE:
        until = schedule.next_reconciliation(facts.payment, facts.now)
    mover = "reconcile, by Stripe's event or the row"
    return broken(cause, detail, mend=f"none is needed; at once: {RUN_RECONCILE}", move=Move(mover, until))


# ---------------------------------------------------------------- the row has an outcome


def _outcome(facts: Facts) -> Iterator[Finding]:
    """The order should have the outcome that the row has: as update_order moves it."""
    order, payment = facts.order, facts.payment
    if order is None or payment is None or payment.state is PaymentState.PENDING:
        return
    transition = OUTCOMES[PAYMENT_EVENT_TYPES[payment.state]]
    counts = transition.of_any_attempt or payment.attempt == order.attempt
    if order.status is transition.status or order.status not in transition.origins or not counts:
        return
    emitted_at = max(payment.finalized_at or 0, payment.last_emitted_at or 0)
    detail = f"the row is {payment.state} since {shown(payment.finalized_at or 0)}, the order {order.status}"
    since = order.waiting_since.timestamp()
    until = schedule.next_republication(since, now=facts.now, checkpoint=facts.republish)
    # republish asks only for what waits.
    mover = "republish asks again, and the row emits its outcome again"
    again = Move(mover, until) if order.status in WAITING else None
    if (stream := facts.source(PAYMENTS)) is not None and not stream.is_enabled:
        mend = _enable(stream)
        yield broken(Cause.OUTCOME_NOT_PUBLISHED, f"{detail}; mapping {stream.uuid}", mend=mend, move=again)
    elif (queue := facts.source(ORDER_UPDATES_QUEUE)) is not None and not queue.is_enabled:
        yield broken(Cause.OUTCOME_NOT_READ, f"{detail}; mapping {queue.uuid}", mend=_enable(queue), move=again)
    elif facts.now - emitted_at < schedule.OUTCOME_SECONDS:
        yield waits(Cause.OUTCOME_ON_ITS_WAY, detail, move=Move("publish_events, then update_order", until))
    else:
        letters = [letter for letter in facts.dead_letters if letter.queue == "OrderUpdatesDlq"]
        where = f"; it is in {letters[0].queue}" if letters else ""
        emit = RUN_REPUBLISH if order.status in WAITING else EMIT_AGAIN.format(order_id=facts.order_id)
        mend = _redrive(letters[0]) if letters else emit
        yield broken(Cause.OUTCOME_NOT_APPLIED, detail + where, mend=mend, move=again)


def _authentication(facts: Facts) -> Iterator[Finding]:
    payment = facts.payment
    if payment is None or payment.state is not PaymentState.REQUIRES_ACTION or _is_decided_at_stripe(facts, payment):
        return
    until = (payment.finalized_at or payment.claimed_at) + facts.requires_action_seconds
    yield waits(
        Cause.AUTHENTICATION_AWAITED,
        f"{payment.payment_intent_id}; after that it is declined, and another card can be tried",
        Move("the customer; then reconcile", until + schedule.RECONCILE_EVERY_SECONDS),
    )


def _review(facts: Facts) -> Iterator[Finding]:
    payment = facts.payment
    is_row = payment is not None and payment.state is PaymentState.NEEDS_REVIEW
    is_order = facts.order is not None and facts.order.status is OrderStatus.NEEDS_REVIEW
    if not is_row and not (is_order and payment is None):
        return
    reason = facts.row.get("decline_code") or "no reason is stored"
    message = facts.row.get("stripe_message")
    detail = f"reason: {reason}" + (f"; Stripe said: {message}" if message else "")
    yield broken(Cause.NEEDS_REVIEW, detail, mend=REVIEW.format(order_id=facts.order_id))


# ---------------------------------------------------------------- afterwards, and around it


def _disputes(facts: Facts) -> Iterator[Finding]:
    disputes = [dispute for each in facts.stripe.intents for dispute in each.disputes]
    for dispute in disputes:
        if dispute.status not in CLOSED_DISPUTES:
            detail = f"{dispute.dispute_id}: {dispute.reason}, {dispute.amount_minor}, {dispute.status}"
            mend = "respond at Stripe (Dashboard, Disputes)"
            yield broken(Cause.DISPUTED, detail, mend=mend, move=Move("you", dispute.respond_by))
    stored = facts.row.get("dispute_status")
    if not disputes and stored is not None and stored not in CLOSED_DISPUTES:
        yield broken(Cause.DISPUTED, f"the row says: {stored}", mend="respond at Stripe (Dashboard, Disputes)")


def _jobs(facts: Facts) -> Iterator[Finding]:
    """A scheduled job that somebody waits for does not run."""
    order, payment = facts.order, facts.payment
    is_waiting = order is not None and order.status in WAITING
    late = facts.now - ROUND_OVERDUE_SECONDS
    if is_waiting and facts.republish is not None and facts.republish.round_at < late:
        detail = f"republish began its last round {shown(facts.republish.round_at)}"
        yield broken(Cause.JOB_STOPPED, detail, mend=f"{RUN_REPUBLISH}; is its schedule enabled?")
    is_unfinished = payment is not None and payment.state in (PaymentState.PENDING, PaymentState.REQUIRES_ACTION)
    if is_unfinished and facts.reconcile is not None and facts.reconcile.round_completed_at < late:
        detail = f"reconcile completed its last round {shown(facts.reconcile.round_completed_at)}"
        yield broken(Cause.JOB_STOPPED, detail, mend=f"{RUN_RECONCILE}; is its schedule enabled?")


def _events(facts: Facts) -> Iterator[Finding]:
    late = [each for each in facts.unprocessed_events if facts.now - each.created >= schedule.OUTCOME_SECONDS]
    if late:
        detail = ", ".join(f"{each.event_id} ({each.type})" for each in late)
        mend = "is the endpoint there, enabled, its signing secret stored? python -m ops webhook create"
        until = facts.now + schedule.RECONCILE_EVERY_SECONDS
        yield broken(Cause.EVENTS_NOT_ARRIVED, detail, mend=mend, move=Move("reconcile reads Stripe's list", until))


def _ended(facts: Facts) -> Finding:
    status = facts.order.status if facts.order else None
    cause = Cause.DECLINED if status is OrderStatus.PAYMENT_DECLINED else Cause.ENDED
    return fine(cause, f"the order is {status}")


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _existence,
    _stripe,
    _dead_letters,
    _failed_records,
    _discrepancies,
    _unclaimed,
    _unfinished,
    _authentication,
    _outcome,
    _review,
    _disputes,
    _events,
    refund_findings,
    _jobs,
)
"""In the order in which a person would check."""


def is_broken(findings: list[Finding]) -> bool:
    """Whether somebody has to act, or has to know."""
    return any(finding.severity is Severity.BROKEN for finding in findings)


def _enable(source: Source) -> str:
    return f"aws lambda update-event-source-mapping --uuid {source.uuid} --enabled"


def _names(facts: Facts) -> str:
    row = f"the row is {facts.payment.state}" if facts.payment else ""
    intents = ", ".join(f"{each.intent.payment_intent_id} is {each.intent.status}" for each in facts.stripe.intents)
    return "; ".join(filter(None, (row, intents)))
