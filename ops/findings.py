"""What to do about an order: facts ─► findings. Pure: no clock, no I/O.

It diagnoses nothing itself. It says what the product's rules say of the row as Stripe shows it now: `decide` of a
charge, or `find_difference`, by which sync writes; then who moves it, a function or a person.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import Any

from onecharge.contract.events import PAYMENT_EVENT_TYPES
from onecharge.contract.money import as_money
from onecharge.contract.refund_events import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.republication import DAY_SECONDS
from onecharge.orders.transitions import OUTCOMES, WAITING
from onecharge.payments.charge_rows import UNPAID, Payment
from onecharge.payments.charge_rules import decide, is_held
from onecharge.payments.payment_intents import read_refund
from onecharge.payments.refund_rules import StripeRefund
from onecharge.payments.refund_rules import own as own_refund
from onecharge.payments.stripe_responses import Deferred, ResponseKind, StripeIntent
from onecharge.payments.sync_rules import find_difference
from ops.errors import NO_SUCH_ORDER
from ops.facts import Facts
from ops.output import time_of

_RESTORE = "if a table was put back: docs/runbook.md#restore-a-table"


class Severity(Enum):
    """Whether nothing is left to do, it ends by itself, or a person has to act or to know."""

    FINE = auto()
    WAITS = auto()
    BROKEN = auto()


@dataclass(frozen=True)
class Finding:
    """One sentence about the order; what happens next by itself; what a person does, or the command to type."""

    severity: Severity
    says: str
    next: str | None = None
    fix: str | None = None

    def as_document(self) -> dict[str, Any]:
        return asdict(self) | {"severity": self.severity.name}


def fine(says: str) -> Finding:
    return Finding(Severity.FINE, says)


def waits(says: str, then: str, until: float | None = None) -> Finding:
    return Finding(Severity.WAITS, says, f"{then}, by {time_of(until)}" if until else then)


def broken(says: str, fix: str, then: str | None = None) -> Finding:
    return Finding(Severity.BROKEN, says, then, fix)


def find(facts: Facts) -> list[Finding]:
    """What a person has to do first, then what happens by itself."""
    found = [each for rule in (_obstacles, _row, _disputes, _order, _refunds) for each in rule(facts)]
    if all(each.severity is Severity.FINE for each in found) and facts.order:
        declined = facts.order.status is OrderStatus.PAYMENT_DECLINED
        more = "another card can be tried" if declined else "nothing is left to do"
        found.insert(0, fine(f"the order is {facts.order.status}: {more}"))
    return sorted(found, key=lambda finding: -finding.severity.value)


def _obstacles(facts: Facts) -> Iterator[Finding]:
    if facts.order_error is not None:
        says = f"the order's item breaks its schema, so that it is not published: {facts.order_error}"
        yield broken(says, "correct the item: republish publishes it once it is valid")
    elif facts.order is None and (facts.payment or facts.intents):
        yield broken("there is a payment, and no order", "restore the Orders table: docs/runbook.md#restore-a-table")
    elif facts.order is None:
        yield broken("neither the tables nor Stripe know this order", NO_SUCH_ORDER)
    if failure := facts.failure:
        says = f"Stripe does not show it: {failure.kind}" + (f": {failure.message}" if failure.message else "")
        then, fix = "whatever waits is tried again", "store the right key in the stack's Stripe secret"
        yield broken(says, fix, then) if failure.alarm else waits(says, then)


# ---------------------------------------------------------------- the row, as Stripe shows it now


def _row(facts: Facts) -> Iterator[Finding]:
    row, order = facts.payment, facts.order
    if order and order.status in WAITING and (row is None or row.attempt < order.attempt):
        yield _republished(facts, f"no worker has taken attempt {order.attempt} yet")
    differences = list(filter(None, (_difference(facts, each.intent) for each in facts.intents)))
    yield from differences
    held = row is not None and is_held(row, facts.now)
    is_paid = order is not None and order.status is OrderStatus.PAID
    if is_paid and not (held or differences) and (row is None or row.state is not PaymentState.SUCCEEDED):
        says = f"the order is PAID, and its payment is {row.state if row else 'lost'}"
        yield broken(says, "look at what happened; if a table lost rows: docs/runbook.md#restore-a-table")
    if row is None:
        return
    if held:
        why = row.held_because or "it is too old to create its PaymentIntent: Stripe may have forgotten its key"
        yield broken(f"held: {why}", f"{facts.ops} release {facts.order_id} --yes")
    elif row.payment_intent_id and facts.has_answered and facts.own is None:
        forget = f"{facts.ops} release {facts.order_id} --forget --yes"
        says = f"this Stripe account does not have the row's {row.payment_intent_id}"
        yield broken(says, f"store the right key; if a wrong one made it: {forget}")
    elif facts.own and row.state is PaymentState.SUCCEEDED and not row.request.matches(facts.own.intent, facts.shop):
        says = f"{row.payment_intent_id}: shop, order, customer, amount or currency are not the row's"
        yield broken(says, "find out who changed it, here or at Stripe: docs/runbook.md#moneydiffers")
    elif differences or is_paid:
        return
    elif row.state is PaymentState.PENDING:
        yield _unfinished(facts, row)
    elif row.state is PaymentState.REQUIRES_ACTION:
        until = (row.finalized_at or row.claimed_at) + facts.requires_action_seconds
        yield waits("the customer has to authenticate (3-D Secure)", "after that, reconcile cancels it", until)


RECONCILED_SECONDS = 40 * 60
"""By then reconcile has read an event that no webhook told."""


def _difference(facts: Facts, intent: StripeIntent) -> Finding | None:
    row, seconds = facts.payment, facts.requires_action_seconds
    found = find_difference(row, intent, shop=facts.shop, now=facts.now, requires_action_seconds=seconds)
    if found is None:
        return None
    says = f"{intent.payment_intent_id} is {intent.status}: {found.says}"
    if row is None and found.changes and facts.now - (intent.charged_at or intent.created) > RECONCILED_SECONDS:
        return broken(says, "its events were read before the row was lost: docs/runbook.md#restore-a-table")
    if found.changes or found.expires:
        return waits(says, "the webhook writes it, or reconcile within 40 minutes")
    if row and row.payment_intent_id is None and row.state in UNPAID:
        return broken(says, f"{facts.ops} release {facts.order_id} --yes")
    return broken(says, f"find out who charged it; {_return_money(intent)}")


def _return_money(charge: StripeIntent) -> str:
    """What a person does about money that is too much. By a dispute the customer has it, or it is decided there."""
    if charge.dispute and not charge.dispute.took_nothing:
        return "refund nothing: its dispute takes the money"
    return "refund what is too much at Stripe (Dashboard, Payments)"


def _unfinished(facts: Facts, row: Payment) -> Finding:
    """What the next delivery does."""
    said = f" (Stripe said: {facts.stripe_message})" if facts.stripe_message else ""
    if facts.now < row.lease_expires_at:
        return waits(f"a worker has the row{said}", "it finishes, or the next delivery does", row.lease_expires_at)
    if facts.own is None:
        does = "continues" if row.payment_intent_id else "creates its PaymentIntent"
        return _republished(facts, f"the next delivery {does}{said}")
    shown = f"{row.payment_intent_id} is {facts.own.intent.status}"
    decision = decide(row, facts.own.intent, is_answered=False)
    if isinstance(decision, Deferred) and decision.alarm:
        return broken(f"{shown}: {decision.why}", "decide at Stripe (Dashboard)")
    return _republished(facts, f"{shown}: the next delivery continues{said}")


def _republished(facts: Facts, says: str) -> Finding:
    """What waits is published again; without an order that waits, only a person does it."""
    if facts.order is None or facts.order.status not in WAITING:
        return broken(says, f"{facts.ops} publish {facts.order_id} --yes")
    then = "its message is delivered again, or republish sends another one, first after 15 minutes"
    return _late(says, then, facts.now - facts.order.waiting_since.timestamp())


def _late(says: str, then: str, age: float) -> Finding:
    if age > DAY_SECONDS:
        return broken(f"{says}; it waits for more than a day", "look for errors in what happened", then)
    return waits(says, then)


# ---------------------------------------------------------------- the order, and its disputes


def _charge(facts: Facts) -> StripeIntent | None:
    """What is refunded of the payment, and the dispute that counts: by its row, if Stripe does not show it."""
    if own := facts.own:
        return replace(own.intent, amount_refunded_minor=own.refunded_minor)
    if (row := facts.payment) is None:
        return None
    known = StripeIntent("", "", row.request.amount_minor, row.request.currency, dispute=row.dispute)
    return replace(known, amount_refunded_minor=row.amount_refunded_minor)


def _disputes(facts: Facts) -> Iterator[Finding]:
    """Who responds to a dispute, and until when. While it takes the money, nobody pays a second time."""
    others = [each.intent for each in facts.intents if each is not facts.own]
    for charge in filter(None, [_charge(facts), *others]):
        dispute = charge.dispute
        if dispute is None or (dispute.took_nothing and not dispute.needs_response):
            continue
        says, evidence = f"the charge is disputed: {dispute.dispute_id} is {dispute.status}", ""
        if refunded := charge.amount_refunded_minor:
            says += f", and {as_money(refunded, charge.currency)} of it is refunded"
            evidence = ", with the refund as evidence"
        if not dispute.needs_response:
            yield fine(f"{says}: the customer has the money by it, or it is decided there: pay nothing")
            continue
        shown = [each for intent in facts.intents for each in intent.disputes if each.id == dispute.dispute_id]
        due_by = next((time_of(at) for each in shown if (at := each.evidence_details.due_by)), "the date shown there")
        yield broken(
            says, f"respond at Stripe (Dashboard, Disputes){evidence}, by {due_by}; pay nothing back meanwhile"
        )


def _order(facts: Facts) -> Iterator[Finding]:
    """The order should have the outcome that the row has: as update_order moves it."""
    order, row, charge = facts.order, facts.payment, _charge(facts)
    if order is None or row is None or charge is None:
        return
    event_type = PAYMENT_EVENT_TYPES.get(row.state)
    is_canceled = order.status is OrderStatus.CANCELED or row.state is PaymentState.CANCELED
    if order.money_differs_from(row.request) and not is_canceled:
        money = as_money(row.request.amount_minor, row.request.currency)
        says = f"the order was lost or put back, and priced again: its payment is {money}, {row.state}"
        yield broken(says, "let its customer cancel it" if row.state in UNPAID else _return_money(charge))
    elif order.status is OrderStatus.CANCELED and row.state is PaymentState.SUCCEEDED:
        if not charge.is_returned:
            yield broken("the order is CANCELED, and was charged", _return_money(charge))
    elif event_type and OUTCOMES[event_type].applies(order, row.attempt):
        yield _republished(facts, f"the row is {row.state}, and the order does not have it yet")


# ---------------------------------------------------------------- refunds


def _refunds(facts: Facts) -> Iterator[Finding]:
    listed = list(map(read_refund, facts.own.refunds)) if facts.own else []
    for refund in facts.refunds:
        yield from _refund(facts, refund, [each for each in listed if each.refund_id == refund.refund_id])
    lost = {each.refund_id or "" for each in listed} - {"", *(each.refund_id for each in facts.refunds)}
    for refund_id in sorted(lost):
        yield broken(f"Stripe has made {refund_id}, and OrderRefunds has no such refund", _RESTORE)


def _refund(facts: Facts, refund: StoredRefund, listed: list[StripeRefund]) -> Iterator[Finding]:
    name = f"{refund.refund_id} of {as_money(refund.amount_minor, refund.currency)}"
    made, why = own_refund(refund.refund_id, listed), _why_not_finished(facts, refund)
    never = "it follows by itself: never pay it in another way, or it is paid twice"
    is_pending, top_up = refund.status is RefundState.PENDING, f"top it up (Dashboard, Balances): {never}"
    if facts.own and (shown := _why_refund_differs(refund, made, listed)):
        yield broken(f"{name} is {refund.status}, and Stripe has {shown}", f"pay nothing meanwhile; {_RESTORE}")
    elif is_pending and made is None and why == ResponseKind.BALANCE_TOO_LOW:
        yield broken(f"Stripe refuses {name} for now: {why}", top_up)
    elif is_pending:
        what = f"Stripe shows it as {made.status}" if made else "it waits for the payment service"
        what += f" ({why})" if why and not made else ""
        yield _late(f"{name}: {what}", never, facts.now - _epoch(refund.requested_at))
    elif refund.status is RefundState.FAILED or (made and made.has_failed):
        code = (made.failure_code if made else None) or refund.failure_code
        says = f"{name} {'failed at' if made or refund.stripe_refund_id else 'was refused by'} Stripe: {code}"
        if settled := _why_not_again(facts, refund, str(code)):
            yield fine(f"{says}; {settled}")
        else:
            yield broken(says, "before you pay anything, read docs/runbook.md#refundfailed")
    elif made and made.pending_reason == "insufficient_funds":
        yield broken(f"Stripe holds {name}: our balance is too low", top_up)


def _why_not_finished(facts: Facts, refund: StoredRefund) -> str | None:
    """What the log says of the refund's last delivery: no table has it."""
    of_it = [each for _, each in facts.lines if each.get("refund_id") == refund.refund_id and each.get("why")]
    return str(of_it[-1]["why"]) if of_it else None


def _why_refund_differs(refund: StoredRefund, made: StripeRefund | None, listed: list[StripeRefund]) -> str | None:
    """What Stripe has instead of what the order says: none, another amount, two, or one that has not failed."""
    is_told_made = refund.status is RefundState.SUCCEEDED or refund.stripe_refund_id is not None
    if made is None:
        return "no such refund" if is_told_made else None
    money, is_made = (refund.amount_minor, refund.currency), [each for each in listed if not each.has_failed]
    is_as_told = (made.amount_minor, made.currency) == money and len(is_made) < 2
    if is_as_told and not (is_made and refund.status is RefundState.FAILED):
        return None
    return ", ".join(f"{each.stripe_refund_id} of {as_money(each.amount_minor, each.currency)}" for each in listed)


_FAILED_BY_DISPUTE = "charge_for_pending_refund_disputed"
_REFUSED_BY_DISPUTE = ("charge_disputed", "refund_disputed_payment")


def _why_not_again(facts: Facts, refund: StoredRefund, code: str) -> str | None:
    """Why a refund that failed is not paid again: the customer has the money, may have it, or a dispute decides."""
    charge = _charge(facts)
    dispute = charge.dispute if charge else None
    decides = not dispute.took_nothing if dispute else code in _REFUSED_BY_DISPUTE
    if decides or code == _FAILED_BY_DISPUTE:
        status = dispute.status if dispute else "not known"
        return f"the customer has the money by a dispute, or it is decided there (it is {status}): pay nothing"
    if charge and charge.is_returned:
        return "the charge is refunded in full: pay nothing"
    ours = {each.refund_id: each for each in facts.refunds if each.status is not RefundState.FAILED}
    later = [refund_id for refund_id, each in ours.items() if each.requested_at > refund.requested_at]
    shown = facts.own.refunds if facts.own else ()
    since = [read_refund(each) for each in shown if each.created >= _epoch(refund.requested_at)]
    later += [str(each.stripe_refund_id) for each in since if not (each.has_failed or each.refund_id in ours)]
    return f"{', '.join(later)} followed: pay nothing, unless it is for something else" if later else None


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
