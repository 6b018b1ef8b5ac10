"""What to do about an order: facts ─► findings. Pure: no clock, no I/O.

It diagnoses nothing itself. It says what the product's rules say of the row as Stripe shows it now: `decide` of a
charge, or `find_difference`, by which sync writes; then who moves it, a function or a person. Whether a customer is
owed money follows only from what Stripe shows.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from onecharge.contract.events import PAYMENT_EVENT_TYPES
from onecharge.contract.money import as_money
from onecharge.contract.refund_events import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.republication import DAY_SECONDS
from onecharge.orders.transitions import MOVES, WAITING, applies
from onecharge.payments.charge_rules import decide, is_held
from onecharge.payments.payment_intents import read_refund
from onecharge.payments.payments_table import UNPAID
from onecharge.payments.refund_rules import REFUSED, Sent, StripeRefund, own
from onecharge.payments.stripe_responses import Deferred, ResponseKind, StripeIntent
from onecharge.payments.sync_rules import find_difference
from ops.facts import NOT_READ, Facts
from ops.output import NO_SUCH_ORDER, seconds_of, time_of

_RESTORE = "if a table was put back, or lost rows: docs/runbook.md#restore-a-table"
_MONEY = "find out why before you refund anything: docs/runbook.md#moneydiffers"

BROKEN, WAITS, FINE = SEVERITIES = ("BROKEN", "WAITS", "FINE")
"""A person has to act or to know; it ends by itself; nothing is left to do."""


class Finding(NamedTuple):
    """One sentence about the order, and what follows: what a person does or types, or what happens by itself."""

    severity: str
    says: str
    then: str = ""


def find(facts: Facts) -> list[Finding]:
    """What a person has to do first, then what happens by itself."""
    found = [each for rule in (_unknown, _row, _disputes, _order, _refunds) for each in rule(facts)]
    if facts.order and all(each.severity == FINE for each in found):
        declined = facts.order.status is OrderStatus.PAYMENT_DECLINED
        more = "another card can be tried" if declined else "nothing is left to do"
        found.insert(0, Finding(FINE, f"the order is {facts.order.status}: {more}"))
    return sorted(found, key=lambda each: SEVERITIES.index(each.severity))


def _unknown(facts: Facts) -> Iterator[Finding]:
    """What is lost, or cannot be read."""
    if facts.order_error is not None:
        says = f"the order's item breaks its schema: {facts.order_error}"
        yield Finding(BROKEN, says, "correct the item: republish publishes it once it is valid")
    elif facts.order is None and (facts.payment or facts.intents):
        yield Finding(BROKEN, "there is a payment, and no order", _RESTORE)  # A sample event makes one, too.
    elif facts.order is None:
        yield Finding(BROKEN, "neither the tables nor the log know this order", NO_SUCH_ORDER)
    if failure := facts.failure:
        says = f"Stripe does not show it: {failure.message or failure.kind}"
        then = "store the right key in the stack's Stripe secret" if failure.alarm else "whatever waits is tried again"
        yield Finding(BROKEN if failure.alarm else WAITS, says, then)
    if facts.lines and facts.lines[-1][1] == NOT_READ:
        says = "the rest of the log was not read: it may name another PaymentIntent of the order"
        yield Finding(WAITS, says, "look for the order's id at Stripe (Dashboard, Payments)")


# ---------------------------------------------------------------- the row, as Stripe shows it now


def _row(facts: Facts) -> Iterator[Finding]:
    row, order, shown, release = facts.payment, facts.order, facts.own, f"{facts.ops} release {facts.order_id}"
    if order and order.status in WAITING and (row is None or row.attempt < order.attempt):
        yield _republished(facts, f"no worker has taken attempt {order.attempt} yet")
    differences = [found for each in facts.intents if (found := _difference(facts, each.intent, release))]
    yield from differences
    if row and is_held(row, facts.now):
        why = row.held_because or "it is too old to create its PaymentIntent: Stripe may have forgotten its key"
        yield Finding(BROKEN, f"held: {why}", f"{release} --yes")
    elif row and row.payment_intent_id and facts.has_answered and shown is None:
        says = f"this Stripe account does not have the row's {row.payment_intent_id}"
        yield Finding(BROKEN, says, f"store the right key; if a wrong one made it: {release} --forget --yes")
    elif row and shown and row.state is PaymentState.SUCCEEDED and not row.request.matches(shown.intent, facts.shop):
        says = f"{row.payment_intent_id}: shop, order, customer, amount or currency are not the row's"
        yield Finding(BROKEN, says, _MONEY)
    elif differences:
        return
    elif order and order.status is OrderStatus.PAID and (row is None or row.state is not PaymentState.SUCCEEDED):
        yield Finding(BROKEN, f"the order is PAID, and its payment is {row.state if row else 'lost'}", _RESTORE)
    elif row and row.state is PaymentState.REQUIRES_ACTION:
        until = time_of((row.finalized_at or row.claimed_at) + facts.requires_action_seconds)
        yield Finding(WAITS, "the customer has to authenticate (3-D Secure)", f"reconcile cancels it from {until} on")
    elif row and row.state is PaymentState.PENDING:
        said = f" (Stripe said: {facts.stripe_message})" if facts.stripe_message else ""
        decision = decide(row, shown.intent, is_answered=False) if shown else None
        if facts.now < row.lease_expires_at:
            yield Finding(WAITS, f"a worker has the row{said}", "it finishes, or the next delivery within minutes")
        elif isinstance(decision, Deferred) and decision.alarm:
            yield Finding(BROKEN, f"{row.payment_intent_id}: {decision.why}", "decide at Stripe (Dashboard)")
        else:
            does = "continues" if row.payment_intent_id else "creates its PaymentIntent"
            yield _republished(facts, f"the next delivery {does}{said}")


def _difference(facts: Facts, intent: StripeIntent, release: str) -> Finding | None:
    row, seconds = facts.payment, facts.requires_action_seconds
    found = find_difference(row, intent, shop=facts.shop, now=facts.now, requires_action_seconds=seconds)
    if found is None:
        return None
    says = f"{intent.payment_intent_id} is {intent.status}: {found.says}"
    if row is None and found.changes:
        return Finding(BROKEN, says, f"reconcile writes it within 40 minutes after the charge; {_RESTORE}")
    if found.changes or found.expires:
        return Finding(WAITS, says, "the webhook writes it, the next delivery, or reconcile within 40 minutes")
    if row and facts.own and facts.own.intent.is_duplicate_of(row.request.money):  # This may be all that was paid.
        return Finding(BROKEN, says, _RESTORE)
    is_released = row is not None and row.payment_intent_id is None and row.state in UNPAID
    return Finding(BROKEN, says, f"{release} --yes" if is_released else _MONEY)


def _republished(facts: Facts, says: str) -> Finding:
    """What waits is published again; without an order that waits, only a person does it."""
    if facts.order is None or facts.order.status not in WAITING:
        return Finding(BROKEN, says, f"{facts.ops} publish {facts.order_id} --yes")
    then = "its message is delivered again, or republish sends another one, first after 15 minutes"
    return _late(says, then, facts.now - facts.order.waiting_since.timestamp())


def _late(says: str, then: str, age: float) -> Finding:
    if age <= DAY_SECONDS:
        return Finding(WAITS, says, then)
    return Finding(BROKEN, f"{says}; it waits for more than a day", f"look for errors in what happened; {then}")


# ---------------------------------------------------------------- disputes, and the order


def _disputes(facts: Facts) -> Iterator[Finding]:
    """Who responds to a dispute, and until when. While it takes the money, nobody pays a second time."""
    for each in facts.intents:
        dispute = each.intent.dispute
        if dispute is None or (dispute.took_nothing and not dispute.needs_response):
            continue
        says = f"the charge is disputed: {dispute.dispute_id} is {dispute.status}"
        if dispute.needs_response:
            details = [shown.evidence_details for shown in each.disputes if shown.id == dispute.dispute_id]
            due_by = next((time_of(shown.due_by) for shown in details if shown.due_by), "the date shown there")
            then = f"respond at Stripe (Dashboard, Disputes) by {due_by}, with any refund as evidence"
            yield Finding(BROKEN, says, f"{then}; pay nothing back meanwhile")
        else:
            yield Finding(FINE, f"{says}: the customer has the money by it, or it is decided there: pay nothing")


def _order(facts: Facts) -> Iterator[Finding]:
    """The order should have the outcome that the row has: as update_order moves it."""
    order, row, shown = facts.order, facts.payment, facts.own
    if order is None or row is None:
        return
    is_canceled = order.status is OrderStatus.CANCELED or row.state is PaymentState.CANCELED
    if order.money != row.request.money and not is_canceled:
        money = as_money(row.request.amount_minor, row.request.currency)
        says = f"the order was lost or put back, and priced again: its payment is {money}, {row.state}"
        yield Finding(BROKEN, says, _MONEY)
    elif order.status is OrderStatus.CANCELED and row.state is PaymentState.SUCCEEDED:
        if shown and not shown.refunded.is_returned:
            yield Finding(BROKEN, "the order is CANCELED, and was charged", _MONEY)
    elif (event_type := PAYMENT_EVENT_TYPES.get(row.state)) and applies(MOVES[event_type], order, row.attempt):
        yield _republished(facts, f"the row is {row.state}, and the order does not have it yet")


# ---------------------------------------------------------------- refunds


def _refunds(facts: Facts) -> Iterator[Finding]:
    at_stripe = facts.own.refunds if facts.own else ()
    listed = list(map(read_refund, at_stripe))
    for refund in facts.refunds:
        yield from _refund(facts, refund, [each for each in listed if each.refund_id == refund.refund_id])
    lost = {each.refund_id or "" for each in listed} - {"", *(each.refund_id for each in facts.refunds)}
    yield from (Finding(BROKEN, f"Stripe has made {each}, and OrderRefunds has not", _RESTORE) for each in sorted(lost))
    by_hand = [each for each in zip(listed, at_stripe, strict=True) if each[0].has_failed and not each[0].refund_id]
    yield from (_failed(facts, shown.id, made, shown.created) for made, shown in by_hand)


def _refund(facts: Facts, refund: StoredRefund, listed: Sequence[StripeRefund]) -> Iterator[Finding]:
    """Of those that Stripe lists under our id: none, another amount, two, or one that was told FAILED is wrong."""
    name = f"{refund.refund_id} of {as_money(refund.amount_minor, refund.currency)}"
    made, money = own(refund.refund_id, listed), (refund.amount_minor, refund.currency)
    kept = [each for each in listed if not each.has_failed]
    is_lost = made is None and (refund.status is RefundState.SUCCEEDED or refund.stripe_refund_id is not None)
    is_other = any((each.amount_minor, each.currency) != money for each in listed) or len(kept) > 1
    sent = facts.payment.refunds_sent.get(refund.refund_id, Sent()) if facts.payment else Sent()
    never = "it follows by itself: never pay it in another way, or it is paid twice"
    # No table says why the last delivery did not finish it.
    whys = [why for _, line in facts.lines if line.get("refund_id") == refund.refund_id if (why := line.get("why"))]
    if facts.own and (is_lost or is_other or (kept and refund.status is RefundState.FAILED)):
        shown = [f"{each.stripe_refund_id} of {as_money(each.amount_minor, each.currency)}" for each in listed]
        says = f"{name} is {refund.status}, and Stripe has {', '.join(shown) or 'no such refund'}"
        yield Finding(BROKEN, says, f"pay nothing meanwhile; {_RESTORE}")
    elif refund.status is RefundState.FAILED or (made and made.has_failed):
        told = StripeRefund(refund.stripe_refund_id, REFUSED, *money, refund.refund_id, refund.failure_code)
        yield _failed(facts, refund.refund_id, made or told, seconds_of(refund.requested_at))
    elif made.pending_reason == "insufficient_funds" if made else whys[-1:] == [ResponseKind.BALANCE_TOO_LOW]:
        says = f"Stripe {'holds' if made else 'refuses'} {name} for now: {ResponseKind.BALANCE_TOO_LOW}"
        yield Finding(BROKEN, says, f"top it up (Dashboard, Balances): {never}")
    elif made is None and sent.code:
        then = "it becomes FAILED, three days later if a request had no answer: pay nothing meanwhile"
        yield Finding(WAITS, f"Stripe has refused {name}: {sent.code}", then)
    elif refund.status is RefundState.PENDING:
        waits = "it waits for the payment service" + (f" ({whys[-1]})" if whys else "")
        what = f"Stripe shows it as {made.status}" if made else waits
        yield _late(f"{name}: {what}", never, facts.now - seconds_of(refund.requested_at))


_FAILED_BY_DISPUTE = "charge_for_pending_refund_disputed"
_REFUSED_BY_DISPUTE = ("charge_disputed", "refund_disputed_payment")


def _failed(facts: Facts, name: str, made: StripeRefund, since: int) -> Finding:
    """It is not paid again if the customer has the money, may have it, or a dispute decides."""
    code, shown, money = made.failure_code, facts.own, as_money(made.amount_minor, made.currency)
    says = f"{name} of {money} {'failed at' if made.stripe_refund_id else 'was refused by'} Stripe: {code}"
    if shown is None:
        return Finding(WAITS, says, "pay nothing before Stripe shows its payment: then explain it again")
    dispute = shown.intent.dispute
    decides = not dispute.took_nothing if dispute else code in _REFUSED_BY_DISPUTE
    # One of ours that has failed, too, has a finding of its own: only one of the two is owed.
    later = {each.refund_id: each.amount_minor for each in facts.refunds if seconds_of(each.requested_at) > since}
    ours = [each.refund_id for each in facts.refunds]
    for each in shown.refunds:
        if each.created >= since and not (other := read_refund(each)).has_failed and other.refund_id not in ours:
            later[each.id] = each.amount
    if decides or code == _FAILED_BY_DISPUTE:
        status = dispute.status if dispute else "not known"
        return Finding(FINE, f"{says}; a dispute decides, or has given the money back ({status}): pay nothing")
    if shown.refunded.is_returned:
        return Finding(FINE, f"{says}; the charge is refunded in full: pay nothing")
    if later:
        says += f"; {as_money(sum(later.values()), made.currency)} followed ({', '.join(later)})"
        if sum(later.values()) >= made.amount_minor:
            return Finding(FINE, f"{says}: pay nothing, unless it is for something else")
    return Finding(BROKEN, says, "before you pay anything, read docs/runbook.md#refundfailed")
