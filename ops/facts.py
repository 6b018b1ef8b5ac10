"""What is known about one order at one moment, as plain data, and how it is read: it writes nothing.

Tables, the log and Stripe. Stripe is one of the facts: if it does not answer, the rest is still explained. Times are
epoch seconds, amounts minor units. findings.py judges the facts.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import stripe
from pydantic import ValidationError

from onecharge.contract.events import reason_of
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.payments.disputes import Dispute
from onecharge.payments.payment_intents import read_intent
from onecharge.payments.payments_table import Payment, payment_of
from onecharge.payments.stripe_errors import classify
from onecharge.payments.stripe_responses import Failure, StripeIntent
from ops.connection import OPS, Stack
from ops.output import seconds_of

READ_SECONDS = 10
"""For how long the log is read: CloudWatch does so page by page, also those that hold nothing of the order."""
_ONCE: Any = {"max_network_retries": 0}
"""A person runs the command again. With the SDK's retry, a Stripe that did not answer took 18 seconds to give up."""

type Lines = Sequence[tuple[float, Mapping[str, Any]]]
"""Of the functions' log: when, and the fields."""
NOT_READ: Mapping[str, Any] = {"service": "ops", "message": "the rest of the log takes too long to read"}


@dataclass(frozen=True, kw_only=True)
class IntentFacts:
    """A PaymentIntent of the order, with what happened to it, in Stripe's objects."""

    intent: StripeIntent
    canceled_at: int | None = None
    charges: Sequence[stripe.Charge] = ()
    refunds: Sequence[stripe.Refund] = ()
    disputes: Sequence[stripe.Dispute] = ()

    @property
    def refunded(self) -> StripeIntent:
        """With the refunds that have not failed: no documentation says that Stripe's total leaves the others out."""
        kept = sum(each.amount for each in self.refunds if each.status not in ("failed", "canceled"))
        return replace(self.intent, amount_refunded_minor=kept)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is known about one order."""

    order_id: str
    now: int
    shop: str = ""
    ops: str = OPS
    requires_action_seconds: int = 43_200
    order: StoredOrder | None = None
    order_error: str | None = None
    """Why the order's item cannot be read: it breaks the schema."""
    payment: Payment | None = None
    stripe_message: str | None = None
    """What Stripe said when the last delivery ended without an outcome."""
    intents: Sequence[IntentFacts] = ()
    """The PaymentIntents that the row, a log line or the caller names, as Stripe shows them; the oldest first."""
    has_answered: bool = True
    """Whether Stripe was asked, and has answered."""
    failure: Failure | None = None
    """Why Stripe does not show them."""
    refunds: Sequence[StoredRefund] = ()
    lines: Lines = ()

    @property
    def own(self) -> IntentFacts | None:
        """The PaymentIntent that the row names, if Stripe shows it."""
        named = self.payment.payment_intent_id if self.payment else None
        return next((each for each in self.intents if each.intent.payment_intent_id == named), None)


def gather(
    stack: Stack, order_id: str, *, asks_stripe: bool = True, intent_ids: Collection[str] = (), lines: Lines | None = ()
) -> Facts:
    """All that is known, with the PaymentIntents that the row, the lines (None: they are read) and the caller name."""
    order, order_error = None, None
    item, row = (stack.item(table, order_id=order_id) for table in ("OrdersTable", "PaymentsTable"))
    try:
        order = StoredOrder.from_item(item) if item else None
        _ = order and order.current_attempt
    except ValidationError as invalid:
        order, order_error = None, reason_of(invalid)
    payment = payment_of(row) if row else None
    if lines is None:
        placed = [time.time(), *([payment.request.placed_at] if payment else [])]
        placed += [seconds_of(order.placed_at)] if order else []
        lines = _read_log(stack, order_id, since=min(placed) - 24 * 3600)
    now, refunds = int(time.time()), stack.refunds.of_order(order_id)
    named = {payment and payment.payment_intent_id, *intent_ids, *(line.get("payment_intent_id") for _, line in lines)}
    found, failure = list[IntentFacts](), None
    try:
        found = [shown for each in named if each and asks_stripe and (shown := _intent_facts(stack.stripe, each))]
    except stripe.StripeError as error:
        failure = classify(error)
    return Facts(
        order_id=order_id,
        now=now,
        shop=stack.value("ShopId"),
        ops=stack.command,
        requires_action_seconds=int(stack.value("RequiresActionSeconds")),
        order=order,
        order_error=order_error,
        payment=payment,
        stripe_message=row["stripe_message"]["S"] if row and "stripe_message" in row else None,
        intents=sorted(found, key=lambda each: each.intent.created),
        has_answered=asks_stripe and failure is None,
        failure=failure,
        refunds=refunds,
        lines=lines,
    )


def _read_log(stack: Stack, order_id: str, since: float) -> Lines:
    """The order's lines. If they are not all, the last one says so."""
    found, ends_at = list[Any](), time.monotonic() + READ_SECONDS
    for page in stack.log(f'{{ $.order_id = "{order_id}" }}', since):
        found += [each for each in page if each[1].get("order_id") == order_id]
        if time.monotonic() > ends_at:
            return [*found, (time.time(), NOT_READ)]
    return found


def _intent_facts(client: stripe.StripeClient, payment_intent_id: str) -> IntentFacts | None:
    """None if the account does not have it."""
    try:
        made = client.v1.payment_intents.retrieve(payment_intent_id, {"expand": ["latest_charge"]}, _ONCE)
    except stripe.InvalidRequestError as error:
        if error.http_status != 404:
            raise
        return None
    of_it: Any = {"payment_intent": payment_intent_id, "limit": 100}
    charges = client.v1.charges.list(of_it, _ONCE).data
    is_disputed = any(getattr(each, "disputed", False) for each in charges)
    disputes = client.v1.disputes.list(of_it, _ONCE).data if is_disputed else []
    counts = Dispute.that_counts(Dispute(each.id, each.status) for each in disputes)
    return IntentFacts(
        intent=replace(read_intent(made), dispute=counts),
        canceled_at=getattr(made, "canceled_at", None),
        charges=charges[::-1],
        refunds=list(client.v1.refunds.list(of_it, _ONCE).auto_paging_iter()) if charges else [],
        disputes=disputes,
    )
