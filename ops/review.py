"""What needs a person's decision: payments and refunds, why, what Stripe shows, and what can be decided.

    review list                                          each with its reason, and the resolutions that are possible now
    review resolve ORDER --as RESOLUTION --reason TEXT   says what it would do; --yes does it

    paid             a PaymentIntent of the order has succeeded with the frozen money: the order becomes PAID
    retry            nothing has succeeded: the protocol runs again, with the same attempt
                     Stripe has no such PaymentIntent as the row names, and --payment-intent names it: without it
                     the row is final, and its order does not know: the row's outcome is emitted again
    cancel           nothing has succeeded: the protocol cancels at Stripe, the order becomes CANCELED
                     the row is unpaid or lost: the order becomes CANCELING, as if its customer had canceled it
                     the payment is of other money, and ended or refunded in full: the order alone becomes CANCELED
    refund-second    two have succeeded: the one that the row does not name is refunded in full, once
    refund-made      with --refund RFD: Stripe shows the frozen amount, or more
    refund-failed    with --refund RFD: Stripe shows that it failed; or shows none, a day after the last attempt

Row and Stripe are read again at the moment of writing; the write is refused if the row has changed since. The row keeps
who decided what, when and why, and `explain` shows it.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any, assert_never

import stripe
from aws_lambda_powertools import Logger

from onecharge.contract.money import as_money
from onecharge.contract.refunds import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import NoSuchOrder, OrderStatusConflict, OrderStore
from onecharge.orders.transitions import CANCEL_IN_REVIEW, CANCEL_UNPAID, RETRY, Transition
from onecharge.orders.waiting import WaitingIndex
from onecharge.payments.after_charge import status_of
from onecharge.payments.canceled_orders import refund_canceled_order
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.charge_rules import UNPAID_STATES, Payment, StripeIntent
from onecharge.payments.instruments import Instruments
from onecharge.payments.refund_rows import RefundStore
from onecharge.payments.refund_rules import FinalizeRefund, Refund, refund_id_of_canceled_order
from onecharge.payments.stripe_events import EventDeferred
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.stripe_rate import StripeRate
from onecharge.payments.stripe_responses import LookupInconclusive, ResponseKind
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.tools import Tools
from onecharge.runtime.dynamodb import from_item
from ops.connection import Stack
from ops.errors import ExitStatus, Problem, stripe_line
from ops.output import Report, Table, time_of
from ops.resolutions import (
    CancelFirst,
    Close,
    RefundResolution,
    RefundSecond,
    Refused,
    Reopen,
    Resolution,
    Step,
    Write,
    decide_refund,
    decide_resolution,
    has_outcome_for,
)
from ops.resolver import RefundReviewStore, Resolver, Review, ReviewStore

REASON_MAX = 500
_LISTED = "order_id reason since stripe possible"
_REFUND_SECONDS = 30
"""As long as a function would take for a refund."""


def add_arguments(parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="review_command", metavar="list|resolve", required=True)
    commands.add_parser("list", help="what needs review, why, and what can be decided")
    resolve = commands.add_parser("resolve", help="decide about one order")
    resolve.add_argument("order", metavar="ORDER", help="an order id")
    choices = [each.value for each in (*Resolution, *RefundResolution)]
    resolve.add_argument("--as", dest="resolution", required=True, choices=choices)
    resolve.add_argument("--reason", required=True, help="why; it is kept on the row")
    resolve.add_argument("--payment-intent", metavar="PI", help="which, of several; or the row's, which Stripe has not")
    resolve.add_argument("--refund", metavar="RFD", help="a refund of the order's")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if arguments.review_command == "list":
        return _list(stack)
    reason = reason_of(arguments.reason)
    if arguments.resolution in list(RefundResolution):
        return _resolve_refund(stack, arguments, reason)
    done, what = resolve(
        arguments.order,
        Resolution(arguments.resolution),
        reason,
        reviews_of(stack),
        chosen=arguments.payment_intent,
        is_dry_run=not arguments.yes,
    )
    return _report({"order_id": arguments.order, "resolution": arguments.resolution, "reason": reason}, what, done=done)


def reason_of(text: str) -> str:
    """The reason in one line. Raises Problem."""
    reason = " ".join(text.split())
    if not reason or len(reason) > REASON_MAX:
        raise Problem(f"a reason is a sentence of 1 to {REASON_MAX} characters: it is kept on the row")
    return reason


def _report(document: dict[str, Any], what: str, *, done: bool) -> Report:
    line = f"{document.get('refund_id') or document['order_id']}: {what}"
    return Report(document | {"done": done, "what": what}, [line], ExitStatus.OK if done else ExitStatus.FOUND)


@dataclass(frozen=True)
class Reviews:
    """What payments are resolved with."""

    resolver: Resolver
    orders: OrderStore
    by: str
    """The caller's ARN."""
    refund_once: Callable[[Payment, StripeIntent], str | None]
    """Refunds in full; returns why it is not refunded yet, or None."""


def resolver_of(stack: Stack) -> Resolver:
    store = ReviewStore(stack.dynamodb, stack.resource("PaymentsTable"))
    return Resolver(store, stack.gateway, time.time)


def _orders(stack: Stack) -> OrderStore:
    return OrderStore(stack.dynamodb, stack.resource("OrdersTable"))


def reviews_of(stack: Stack) -> Reviews:
    return Reviews(resolver_of(stack), _orders(stack), stack.caller, partial(refund_once, stack))


# ---------------------------------------------------------------- list


def _list(stack: Stack) -> Report:
    resolver = resolver_of(stack)
    orders = WaitingIndex(stack.dynamodb, stack.resource("OrdersTable"), "waiting_since")
    payments = [_in_review(stack, resolver, each["order_id"]) for each in _reviewed(orders, OrderStatus.NEEDS_REVIEW)]
    index = WaitingIndex(stack.dynamodb, stack.resource("OrderRefundsTable"), "requested_at")
    refunds = [
        {"order_id": each["order_id"], "refund_id": each["refund_id"]}
        for each in _reviewed(index, RefundState.NEEDS_REVIEW)
    ]
    parts = [
        Table.of("payments: `review resolve ORDER --as` one of what is possible", _LISTED, payments),
        Table.of("refunds: `explain ORDER` says why", "order_id refund_id", refunds),
    ]
    status = ExitStatus.FOUND if payments or refunds else ExitStatus.OK
    return Report({"payments": payments, "refunds": refunds}, parts, status)


def _reviewed(index: WaitingIndex, status: str) -> list[dict[str, Any]]:
    """The entries of this status, the longest waiting first."""
    found = [each for each in index.entries(until=time.time()) if each["status"] == status]
    return sorted(found, key=itemgetter(index.since))


def _in_review(stack: Stack, resolver: Resolver, order_id: str) -> dict[str, Any]:
    row = from_item(stack.item("PaymentsTable", order_id=order_id) or {})
    document: dict[str, Any] = {
        "order_id": order_id,
        "reason": row.get("decline_code", "no reason is stored"),
        "since": time_of(row["finalized_at"]) if "finalized_at" in row else "",
        "stripe": [],
        "possible": [],
    }
    try:
        seen = resolver.look_up(order_id)
    except LookupInconclusive:
        return document | {"stripe": ["more than was read"]}
    except stripe.StripeError as error:
        return document | {"stripe": [stripe_line(error)]}
    possible = [each.value for each in Resolution if not isinstance(decide_resolution(each, seen), Refused)]
    order = _orders(stack).find(order_id)
    if order is not None and seen.payment is not None and order.money_differs_from(seen.payment):
        document |= {"reason": "the payment is of other money than the order"}
        possible = [each for each in possible if each != Resolution.RETRY]
    elif order is not None and is_half_done(order, seen.payment):
        possible.append(Resolution.RETRY.value)
    if order is not None and _cancellation_of(order, seen.payment):
        possible.append(Resolution.CANCEL.value)
    nothing = "no PaymentIntent" if seen.payment else "the payment's row is lost"
    return document | {"stripe": [_shown(each) for each in seen.intents] or [nothing], "possible": possible}


def _shown(intent: StripeIntent) -> str:
    by_hand = f" as {intent.cancellation_reason or 'no reason'}, by hand" if intent.is_canceled_by_hand else ""
    return f"{intent.payment_intent_id} is {intent.status}{by_hand}"


# ---------------------------------------------------------------- resolve a payment


def resolve(
    order_id: str,
    resolution: Resolution,
    reason: str,
    reviews: Reviews,
    *,
    chosen: str | None = None,
    is_dry_run: bool = False,
) -> tuple[bool, str]:
    """Resolve one payment. Returns whether it is done, and what is; in a dry run what would be.

    Raises LookupInconclusive, stripe.StripeError, and botocore's errors.
    """
    resolver, orders = reviews.resolver, reviews.orders
    row, order = resolver.store.read(order_id), orders.find(order_id)
    review = Review(resolution, reviews.by, reason, int(resolver.clock()), chosen)
    if resolution is Resolution.CANCEL and not chosen and order and (move := _cancellation_of(order, row)):
        return _cancel(orders, order, move, review, is_dry_run=is_dry_run)
    if resolution is Resolution.RETRY and order is not None and row is not None and order.money_differs_from(row):
        # The row is of an order that was lost: its money is not what this one costs.
        paid, costs = (as_money(each.amount_minor, each.currency) for each in (row, order))
        return False, f"refused: the payment is of {paid}, the order {costs}: resolve it as cancel"
    if resolution is Resolution.RETRY and order is not None and is_half_done(order, row):
        return _finish(reviews, order, row, is_dry_run=is_dry_run)
    if is_dry_run:
        seen = resolver.look_up(order_id)
        decision = decide_resolution(resolution, seen, chosen=chosen)
        if isinstance(decision, Refused):
            return False, f"refused: {decision.why}"
        return False, f"would {_what(decision, seen.payment)}; --yes does it"
    outcome = resolver.resolve(order_id, resolution, review, chosen=chosen)
    if isinstance(outcome, Refused):
        return False, f"refused: {outcome.why}"
    match outcome.decision:
        case Reopen(cancel=False):
            return publish_again(
                orders, orders.find(order_id), outcome.payment, outcome.revision, now=_time_of(resolver)
            )
        case Close():
            return _cancel(orders, order, CANCEL_UNPAID, review) if order else (False, "refused: there is no order")
        case RefundSecond(intent):
            why = reviews.refund_once(outcome.payment, intent)
            if why is not None:
                return False, f"refused: recorded, and not refunded yet: {why}"
    return True, f"done: {_what(outcome.decision, outcome.payment)}"


def _time_of(resolver: Resolver) -> datetime:
    return datetime.fromtimestamp(resolver.clock(), UTC)


def _what(decision: CancelFirst | Step, payment: Payment | None) -> str:
    row = f"on revision {payment.revision}" if payment else ""
    match decision:
        case CancelFirst(ids):
            return f"cancel {', '.join(ids)} at Stripe as abandoned, then check again"
        case Write(final):
            status = status_of(final.after_charge.disputes) if final.after_charge else None
            end = f"PAID; it is disputed: {status}" if status else "PAID"
            if payment and final.after_charge and final.after_charge.amount_refunded_minor >= payment.amount_minor:
                end += ", and refunded in full"
            return f"write {final.state} with {final.payment_intent_id} {row}: its stream makes the order {end}"
        case Reopen(cancel, accepted, leaves_behind):
            without = f" without {payment.payment_intent_id}" if leaves_behind and payment else ""
            if cancel:
                asked = "with a request to cancel"
                return f"put the row back to PENDING{without} {asked}, {row}: reconcile cancels it at Stripe"
            despite = f", although {', '.join(accepted)} was canceled at Stripe" if accepted else ""
            return (
                f"put the row back to PENDING{without}, {row}, and the order to PENDING: "
                f"its message charges it, once{despite}"
            )
        case Close():
            return (
                "cancel the order alone: what succeeded at Stripe is refunded in full, and the payment stays as it is"
            )
        case RefundSecond(intent):
            money = as_money(intent.amount_minor, intent.currency)
            return f"refund {intent.payment_intent_id} in full, {money}, once; the record goes {row}"
        case _:
            assert_never(decision)


def is_half_done(order: StoredOrder, row: Payment | None) -> bool:
    """Whether a `retry` has only the order left to move, or its row to emit: nothing else asks the row again.

    An earlier `retry` was interrupted before it moved the order; the outcome of the row was lost, and republish asks
    only for orders that wait; or the row itself was lost, and only a message makes it again.
    """
    if order.status is OrderStatus.NEEDS_REVIEW:
        # reconcile finishes a cancellation, which another person has decided.
        is_canceling = row is not None and row.state is PaymentState.PENDING and row.cancel_requested_at is not None
        return not is_canceling and (row is None or row.state is not PaymentState.NEEDS_REVIEW)
    return order.status is OrderStatus.PAYMENT_DECLINED and has_outcome_for(order, row)


def _finish(reviews: Reviews, order: StoredOrder, row: Payment | None, *, is_dry_run: bool) -> tuple[bool, str]:
    resolver = reviews.resolver
    if row is None or not has_outcome_for(order, row):
        if is_dry_run:
            return False, "would move the order to PENDING, which its stream publishes; --yes does it"
        revision = row.revision if row else order.payment_revision
        return publish_again(reviews.orders, order, row, revision, now=_time_of(resolver))
    if is_dry_run:
        return False, f"would emit the outcome of the row again, which is {row.state}; --yes does it"
    if not resolver.store.reemit_outcome(row, now=int(resolver.clock())):
        return False, "refused: the row has changed since it was read: check again"
    return True, f"done: the row is {row.state}; its outcome moves the order"


def publish_again(
    orders: OrderStore, order: StoredOrder | None, row: Payment | None, revision: int, *, now: datetime
) -> tuple[bool, str]:
    """Move the order to PENDING: its stream publishes the current attempt, as it does a new one.

    Args:
        row: None if it was lost.
        revision: with which the row is PENDING. What it said before, such as that it needs review, is stale.
    """
    if order is None:
        return False, "the row is PENDING; there is no order"
    changes = {"payment_revision": ":revision"}
    values: dict[str, Any] = {":revision": revision}
    conditions = ["(attribute_not_exists(payment_revision) OR payment_revision <= :revision)"]
    if row is not None and row.attempt > order.attempt:
        # A restored order has forgotten attempts: the row refuses its present one.
        changes |= {"attempt": ":attempt", "payment_method": ":payment_method"}
        values |= {":attempt": row.attempt, ":payment_method": row.payment_method or order.payment_method}
        conditions.append("attempt < :attempt")
    try:
        orders.move(order.order_id, RETRY, at=now, changes=changes, values=values, conditions=conditions)
    except (OrderStatusConflict, NoSuchOrder) as conflict:
        return False, f"the row is PENDING; the order was not moved: {type(conflict).__name__}: {conflict}"
    return True, "done: row and order are PENDING again; the order's message charges it, once"


def _cancellation_of(order: StoredOrder, row: Payment | None) -> Transition | None:
    """The order's move that cancels it, if the row itself needs no decision.

    What may still be charged is canceled at Stripe first: a late message of the order finds that end there, should the
    row be lost. A payment of other money can end the order only then.
    """
    if row is None or row.state in UNPAID_STATES:
        return CANCEL_IN_REVIEW
    is_ended = row.state is not PaymentState.NEEDS_REVIEW and order.status is OrderStatus.NEEDS_REVIEW
    return CANCEL_UNPAID if is_ended and order.money_differs_from(row) else None


def _cancel(
    orders: OrderStore, order: StoredOrder, move: Transition, review: Review, *, is_dry_run: bool = False
) -> tuple[bool, str]:
    """Let the order's message cancel the payment; or CANCEL_UNPAID, which leaves it: of a lost order, or refunded."""
    if order.status not in move.origins:
        return False, f"refused: the order is {order.status}"
    if is_dry_run and move is CANCEL_UNPAID:
        return False, "would cancel the order, and leave the payment, which is of other money; --yes does it"
    if is_dry_run:
        return False, "would request the order's cancellation, which its message finishes at Stripe; --yes does it"
    at = datetime.fromtimestamp(review.at, UTC)
    values = {":record": {"by": review.by, "reason": review.reason}, ":at": at.isoformat()}
    changes = {"canceled_by": ":record", "cancel_requested_at": ":at"}
    try:
        orders.move(order.order_id, move, at=at, changes=changes, values=values)
    except (OrderStatusConflict, NoSuchOrder) as conflict:
        return False, f"refused: the order was not moved: {type(conflict).__name__}: {conflict}"
    if move is CANCEL_IN_REVIEW:
        return True, "done: the order is CANCELING; Stripe decides whether it becomes CANCELED"
    return (
        True,
        "done: the order is CANCELED; the payment is as it was: refund what it paid, unless somebody gets that",
    )


def refund_once(stack: Stack, payment: Payment, intent: StripeIntent) -> str | None:
    """Refund a PaymentIntent in full, once; returns why it is not refunded yet, or None.

    By the refund protocol, as the refund of a canceled order that was charged. Its id derives from the order and the
    PaymentIntent, so that there is one refund however often it is requested. A lookup precedes every request.
    """
    store = RefundStore(stack.dynamodb, stack.resource("RefundsTable"))
    bounds = TimeBounds.of(_REFUND_SECONDS)
    tools = Tools(
        payments=PaymentStore(stack.dynamodb, stack.resource("PaymentsTable")),
        refunds=store,
        stripe=StripeGateway(stack.stripe),
        instruments=Instruments(time.time, Logger(service="ops", level="CRITICAL"), lambda _: None),
        rate=StripeRate(per_second=1),
        lease_seconds=bounds.lease_seconds,
        deadline=bounds.deadline(time.time()),
        look_up_placed_before=lambda: 0,
        requires_action_seconds=0,
    )
    try:
        refund_canceled_order(payment, intent, tools)
    except EventDeferred as deferred:
        return f"{deferred}; run this again"
    order_id = payment.request.order_id
    made = store.read(order_id, refund_id_of_canceled_order(order_id, intent.payment_intent_id))
    if made is None or made.state is not RefundState.SUCCEEDED:
        return f"the refund is {made.state}: {made.failure_code}" if made else "its row is lost; run this again"
    return None


# ---------------------------------------------------------------- resolve a refund


def _resolve_refund(stack: Stack, arguments: Namespace, reason: str) -> Report:
    """Read the row, then Stripe, and write on the row's revision. Raises stripe.StripeError, LookupInconclusive."""
    if not arguments.refund:
        raise Problem("which refund? Name it with --refund RFD: `review list` shows them")
    store = RefundReviewStore(stack.dynamodb, stack.resource("RefundsTable"))
    refund, now = store.read(arguments.order, arguments.refund), int(time.time())
    resolution = RefundResolution(arguments.resolution)
    document = {"order_id": arguments.order, "refund_id": arguments.refund, "resolution": resolution}
    resolved = RefundState.SUCCEEDED if resolution is RefundResolution.MADE else RefundState.FAILED
    if refund is not None and refund.state is resolved:
        # Its outcome may have been lost: nothing asks again for a refund in review.
        done = arguments.yes and store.reemit_outcome(refund, now=now)
        what = f"the row is {refund.state} already; its outcome {'is' if done else 'would be'} emitted again"
        return _report(document, what, done=done)
    decision = _decide_refund(stack, resolution, refund, now=now)
    if isinstance(decision, Refused) or refund is None:
        why = decision.why if isinstance(decision, Refused) else "there is no row"
        return _report(document, f"refused: {why}", done=False)
    if not arguments.yes:
        what = f"would write {decision.state} on revision {refund.revision}; --yes does it"
        return _report(document, what, done=False)
    if store.resolve(refund, decision, Review(resolution, stack.caller, reason, now)):
        return _report(document, f"done: {decision.state}", done=True)
    return _report(document, "refused: the row has changed since it was read: check again", done=False)


def _decide_refund(
    stack: Stack, resolution: RefundResolution, refund: Refund | None, *, now: int
) -> FinalizeRefund | Refused:
    """Another account shows no refund either, and decides nothing: Stripe has to have the refund's PaymentIntent."""
    if refund is None:
        return decide_refund(resolution, None, [], now=now)
    request = refund.request
    failure = stack.gateway.retrieve(request.payment_intent_id).failure
    if failure and failure.kind is ResponseKind.NOT_FOUND:
        return Refused(f"Stripe has no {request.payment_intent_id}: is the key another account's?")
    found = StripeGateway(stack.stripe).find_refunds(request.payment_intent_id, request.refund_id)
    return decide_refund(resolution, refund, found, now=now)
