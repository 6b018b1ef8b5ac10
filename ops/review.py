"""Payments that need review: which there are and why, what Stripe shows, and what a person decides about one of them.

    review list                                          each with its reason, and the resolutions that are possible now
    review resolve ORDER --as RESOLUTION --reason TEXT   says what it would do; --yes does it

    paid             a PaymentIntent of the order has succeeded with the frozen money: the order becomes PAID
    retry            nothing has succeeded: the protocol runs again, with the same attempt
                     the row is final, and its order does not know: the row's outcome is emitted again
    cancel           nothing has succeeded: the protocol cancels at Stripe, the order becomes CANCELED
    refund-second    two have succeeded: the one that the row does not name is refunded in full, once
    refund-made      with --refund RFD: Stripe shows it, with the frozen amount
    refund-failed    with --refund RFD: Stripe shows that it failed; or shows none, a day after the last attempt

Row and Stripe are read again at the moment of writing; the write is refused if the row has changed since. Who decided
what, when and why is kept on the row, and shown by `explain`.
"""

import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, assert_never

import stripe

from onecharge.contract.refunds import RefundStatus
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.store import NoSuchOrder, OrderStatusConflict, OrderStore
from onecharge.orders.transitions import RETRY
from onecharge.orders.waiting import WaitingIndex
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.protocol import CLOSED_STATES
from onecharge.payments.stripe_responses import LookupInconclusive
from ops.clock import shown
from ops.connection import Stack
from ops.errors import ExitStatus, Problem, stripe_line
from ops.output import Report, Table
from ops.refund_review import RefundResolution, resolve_refund
from ops.resolutions import (
    CancelFirst,
    Decision,
    Refund,
    Refused,
    Reopen,
    Resolution,
    Seen,
    Write,
    decide_resolution,
)
from ops.resolver import Resolved, Resolver
from ops.review_refund import refund_once
from ops.review_store import Review, ReviewStore

HELP = "list what a person has to decide, and resolve it"
REASON_MAX = 500


def add_arguments(parser: ArgumentParser) -> None:
    """Its two subcommands."""
    commands = parser.add_subparsers(dest="review_command", metavar="list|resolve", required=True)
    commands.add_parser("list", help="what needs review, why, and what can be decided")
    resolve = commands.add_parser("resolve", help="decide about one order")
    resolve.add_argument("order", metavar="ORDER", help="an order id")
    choices = [each.value for each in Resolution]
    choices += [each.value for each in RefundResolution]
    resolve.add_argument("--as", dest="resolution", required=True, choices=choices)
    resolve.add_argument("--reason", required=True, help="why; it is kept on the row")
    resolve.add_argument("--payment-intent", metavar="PI", help="which one, if there are several")
    resolve.add_argument("--refund", metavar="RFD", help="a refund of the order's")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    reviews = Reviews.of(stack)
    if arguments.review_command == "list":
        return _list(stack, reviews)
    reason = " ".join(arguments.reason.split())
    if not reason or len(reason) > REASON_MAX:
        raise Problem(f"--reason is a sentence of 1 to {REASON_MAX} characters: it is kept on the row")
    if arguments.resolution in list(RefundResolution):
        return _resolve_refund(stack, arguments, reason)
    wanted = Wanted(arguments.order, Resolution(arguments.resolution), reason, arguments.payment_intent)
    try:
        return _resolve(stack, reviews, wanted) if arguments.yes else _dry_run(reviews, wanted)
    except LookupInconclusive:
        raise Problem("Stripe has more to show than was read: run this again later", ExitStatus.FOUND) from None


@dataclass(frozen=True)
class Wanted:
    """What the person has decided."""

    order_id: str
    resolution: Resolution
    reason: str
    payment_intent_id: str | None


@dataclass(frozen=True)
class Reviews:
    """The stores of both services, and what resolves."""

    resolver: Resolver
    orders: OrderStore

    @classmethod
    def of(cls, stack: Stack) -> "Reviews":
        store = ReviewStore(stack.dynamodb, stack.resource("PaymentsTable"))
        resolver = Resolver(
            store,
            StripeGateway(stack.stripe),
            time.time,
            refund=refund_once(stack),
        )
        return cls(resolver, OrderStore(stack.dynamodb, stack.resource("OrdersTable")))


# ---------------------------------------------------------------- list


def _list(stack: Stack, reviews: Reviews) -> Report:
    documents = [_review_document(stack, reviews, order_id) for order_id in _orders_in_review(stack)]
    rows = [
        (each["order_id"], each["reason"], each["since"], ", ".join(each["stripe"]), ", ".join(each["possible"]))
        for each in documents
    ]
    parts: list[Table | str] = [
        Table("payments", ("order", "reason", "since", "at Stripe", "can be resolved as"), rows)
    ]
    document: dict[str, Any] = {"payments": documents}
    refunds = [{"order_id": key["order_id"], "refund_id": key["refund_id"]} for key in _refunds_in_review(stack)]
    document["refunds"] = refunds
    parts.append(
        Table("refunds: `explain ORDER` says why", ("order", "refund"), [tuple(each.values()) for each in refunds])
    )
    return Report(document, parts, ExitStatus.FOUND if any(document.values()) else ExitStatus.OK)


def _orders_in_review(stack: Stack) -> list[str]:
    index = WaitingIndex(stack.dynamodb, stack.resource("OrdersTable"), "placed_at")
    found = [each for each in index.entries(until=time.time()) if each["status"] == OrderStatus.NEEDS_REVIEW]
    return [each["order_id"] for each in sorted(found, key=itemgetter("placed_at"))]


def _resolve_refund(stack: Stack, arguments: Namespace, reason: str) -> Report:
    if not arguments.refund:
        raise Problem("which refund? Name it with --refund RFD: `review list` shows them")
    resolution = RefundResolution(arguments.resolution)
    return resolve_refund(stack, arguments.order, arguments.refund, resolution, reason, yes=arguments.yes)


def _refunds_in_review(stack: Stack) -> list[dict[str, str]]:
    index = WaitingIndex(stack.dynamodb, stack.resource("OrderRefundsTable"), "requested_at")
    found = [each for each in index.entries(until=time.time()) if each["status"] == RefundStatus.NEEDS_REVIEW]
    return sorted(found, key=itemgetter("requested_at"))


def _review_document(stack: Stack, reviews: Reviews, order_id: str) -> dict[str, Any]:
    item = stack.dynamodb.get_item(
        TableName=stack.resource("PaymentsTable"), Key={"order_id": {"S": order_id}}, ConsistentRead=True
    ).get("Item", {})
    reason = item.get("decline_code", {}).get("S", "no reason is stored")
    document: dict[str, Any] = {"order_id": order_id, "reason": reason, "since": "", "stripe": [], "possible": []}
    if "finalized_at" in item:
        document["since"] = shown(int(item["finalized_at"]["N"]))
    try:
        seen = reviews.resolver.look_up(order_id)
    except LookupInconclusive:
        return document | {"stripe": ["more than was read"]}
    except stripe.StripeError as error:
        return document | {"stripe": [stripe_line(error)]}
    possible = [each.value for each in Resolution if not isinstance(decide_resolution(each, seen), Refused)]
    if seen.payment is not None and seen.payment.state is not PaymentState.NEEDS_REVIEW:
        possible.append(Resolution.RETRY.value)
    intents = [f"{each.payment_intent_id} is {each.status}" for each in seen.intents]
    return document | {"stripe": intents or ["no PaymentIntent"], "possible": possible}


# ---------------------------------------------------------------- resolve


def _dry_run(reviews: Reviews, wanted: Wanted) -> Report:
    seen = reviews.resolver.look_up(wanted.order_id)
    if _is_half_done(reviews, seen, wanted):
        return _report(wanted, f"would {_what_is_left(seen)}; --yes does it", False)
    decision = decide_resolution(wanted.resolution, seen, chosen=wanted.payment_intent_id)
    if isinstance(decision, Refused):
        return _report(wanted, f"refused: {decision.why}", False)
    return _report(wanted, f"would {_what(decision, seen)}; --yes does it", False)


def _what(decision: Decision, seen: Seen) -> str:
    row = f"on revision {seen.payment.revision}" if seen.payment else ""
    match decision:
        case CancelFirst(ids):
            return f"cancel {', '.join(ids)} at Stripe as abandoned, then check again"
        case Write(final):
            return f"write {final.state} with {final.payment_intent_id} {row}: its stream makes the order PAID"
        case Reopen(cancel=True):
            return f"put the row back to PENDING with a request to cancel, {row}: reconcile cancels it at Stripe"
        case Reopen():
            return f"put the row back to PENDING, {row}, and the order to PENDING: its message charges it, once"
        case Refund(intent):
            money = f"{intent.amount_minor} {intent.currency}"
            return f"refund {intent.payment_intent_id} in full, {money}, once; the record goes {row}"
        case Refused(why):
            return why
        case _:
            assert_never(decision)


def _resolve(stack: Stack, reviews: Reviews, wanted: Wanted) -> Report:
    now = int(time.time())
    review = Review(wanted.resolution, stack.caller, wanted.reason, now, wanted.payment_intent_id)
    seen = Seen(reviews.resolver.store.read(wanted.order_id))
    if _is_half_done(reviews, seen, wanted):
        return _finish(reviews, seen, wanted)
    outcome = reviews.resolver.resolve(wanted.order_id, wanted.resolution, review, chosen=wanted.payment_intent_id)
    if not isinstance(outcome, Resolved):
        return _report(wanted, f"refused: {outcome.why}", False)
    if outcome.decision == Reopen(cancel=False):
        return _publish_again(reviews, wanted)
    return _report(wanted, f"done: {_what(outcome.decision, Seen(outcome.payment))}", True)


def _is_half_done(reviews: Reviews, seen: Seen, wanted: Wanted) -> bool:
    """Whether the row needs no review any more, and its order does not know; and nobody asks the row again.

    An earlier `retry` was gone before it moved the order; or the outcome of the row was lost: republish asks only for
    orders that wait.
    """
    if wanted.resolution is not Resolution.RETRY or seen.payment is None:
        return False
    order = reviews.orders.find(wanted.order_id)
    if order is None or seen.payment.state is PaymentState.NEEDS_REVIEW:
        return False
    is_late = order.status is OrderStatus.PAYMENT_DECLINED and seen.payment.state in CLOSED_STATES
    return is_late or order.status is OrderStatus.NEEDS_REVIEW


def _moves_the_order(seen: Seen) -> bool:
    """Whether the order has to be PENDING first: its review ignores what the row has to say."""
    return seen.payment is not None and seen.payment.state in (PaymentState.PENDING, PaymentState.REQUIRES_ACTION)


def _what_is_left(seen: Seen) -> str:
    if _moves_the_order(seen):
        return "move the order to PENDING, which its stream publishes"
    return f"emit the outcome of the row again, which is {seen.payment.state if seen.payment else None}"


def _finish(reviews: Reviews, seen: Seen, wanted: Wanted) -> Report:
    if seen.payment is None or _moves_the_order(seen):
        return _publish_again(reviews, wanted)
    if not reviews.resolver.store.reemit_outcome(seen.payment, now=int(time.time())):
        return _report(wanted, "refused: the row has changed since it was read: check again", False)
    return _report(wanted, f"done: the row is {seen.payment.state}; its outcome moves the order", True)


def _publish_again(reviews: Reviews, wanted: Wanted) -> Report:
    """Move the order to PENDING: its stream publishes the present attempt, as it does a new one."""
    now = datetime.now(UTC)
    try:
        reviews.orders.move(
            wanted.order_id,
            RETRY,
            at=now,
            # An item that is as it was before has no stream record.
            changes={"retried_at": ":retried_at"},
            values={":retried_at": now.isoformat()},
        )
    except (OrderStatusConflict, NoSuchOrder) as conflict:
        what = f"the row is PENDING; the order was not moved: {type(conflict).__name__}: {conflict}"
        return _report(wanted, what, False)
    return _report(wanted, "done: row and order are PENDING again; the order's message charges it, once", True)


def _report(wanted: Wanted, what: str, is_done: bool) -> Report:
    document = {
        "order_id": wanted.order_id,
        "resolution": wanted.resolution,
        "reason": wanted.reason,
        "done": is_done,
        "what": what,
    }
    return Report(document, [f"{wanted.order_id}: {what}"], ExitStatus.OK if is_done else ExitStatus.FOUND)
