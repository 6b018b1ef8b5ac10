"""What is known about one order at one moment, as plain data, and how it is read: it writes nothing.

Tables, Stripe and the log. Stripe is one of the facts: if it does not answer, the rest is still explained. Times are
epoch seconds, amounts minor units. findings.py judges the facts.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import stripe
from pydantic import ValidationError

from onecharge.contract.events import reason_of
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charge_rows import Payment, payment_of
from onecharge.payments.payment_intents import read_intent
from onecharge.payments.stripe_responses import Dispute, Failure, StripeIntent, classify
from ops.connection import Stack
from ops.release import MARGIN_SECONDS, orders_named_by

READ_SECONDS = 10
"""For how long the log is read, and then Stripe's list of the order's first day: of a large shop it is long."""
_DAY_SECONDS = 26 * 3600
_ONCE: Any = {"max_network_retries": 0}
"""A person runs the command again. With the SDK's retry, a Stripe that did not answer took 18 seconds to give up."""


@dataclass(frozen=True, kw_only=True)
class IntentFacts:
    """A PaymentIntent of the order, with what happened to it, in Stripe's objects."""

    intent: StripeIntent
    canceled_at: int | None = None
    charges: Sequence[stripe.Charge] = ()
    refunds: Sequence[stripe.Refund] = ()
    disputes: Sequence[stripe.Dispute] = ()

    @property
    def refunded_minor(self) -> int:
        """The sum of the refunds that have not failed."""
        return sum(each.amount for each in self.refunds if each.status not in ("failed", "canceled"))


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is known about one order."""

    order_id: str
    now: int
    shop: str = ""
    ops: str = ".venv/bin/python -m ops"
    """How the commands begin, as they are typed."""
    requires_action_seconds: int = 43_200
    order: StoredOrder | None = None
    order_error: str | None = None
    """Why the order's item cannot be read: it breaks the schema."""
    payment: Payment | None = None
    stripe_message: str | None = None
    """What Stripe said when the last delivery ended without an outcome."""
    intents: Sequence[IntentFacts] = ()
    """The order's PaymentIntents at Stripe, the oldest first."""
    has_answered: bool = True
    """Whether Stripe was asked, and has answered."""
    failure: Failure | None = None
    """Why Stripe does not show them."""
    refunds: Sequence[StoredRefund] = ()
    """The order service's."""
    lines: Sequence[tuple[float, Mapping[str, Any]]] = ()
    """Lines of the functions' log: when, and their fields."""
    omitted: Sequence[str] = ()
    """What was not read to its end."""

    @property
    def own(self) -> IntentFacts | None:
        """The PaymentIntent that the row names, if Stripe shows it."""
        named = self.payment.payment_intent_id if self.payment else None
        return next((each for each in self.intents if each.intent.payment_intent_id == named), None)


def gather(
    stack: Stack,
    order_id: str,
    *,
    asks_stripe: bool = True,
    intent_ids: Collection[str] = (),
    reads_log: bool = False,
) -> Facts:
    """All that is known about the order; the log only if it is asked for.

    Args:
        intent_ids: PaymentIntents of the order, beside the row's and those of its first day.
    """
    now, order, order_error, omitted = int(time.time()), None, None, list[str]()
    item, row = (stack.item(table, order_id=order_id) for table in ("OrdersTable", "PaymentsTable"))
    try:
        order = StoredOrder.from_item(item) if item else None
        _ = order and order.current_attempt
    except ValidationError as invalid:
        order, order_error = None, reason_of(invalid)
    payment = payment_of(row) if row else None
    began = [payment.request.placed_at, payment.released_at or 0] if payment else []
    began += [int(datetime.fromisoformat(order.placed_at).timestamp())] if order else []
    since = min(filter(None, began), default=now - _DAY_SECONDS)
    pages = stack.log(f'{{ $.order_id = "{order_id}" }}', since - 60) if reads_log else ()
    lines = [line for page in _in_time(pages, "the log", omitted) for line in page]
    facts = Facts(
        order_id=order_id,
        now=now,
        shop=stack.shop,
        ops=stack.command,
        requires_action_seconds=int(stack.parameter("RequiresActionSeconds")),
        order=order,
        order_error=order_error,
        payment=payment,
        stripe_message=row["stripe_message"]["S"] if row and "stripe_message" in row else None,
        has_answered=False,
        refunds=stack.refunds.of_order(order_id),
        lines=sorted((each for each in lines if each[1].get("order_id") == order_id), key=lambda line: line[0]),
        omitted=omitted,
    )
    if not asks_stripe:
        return facts
    created = {"gte": since - MARGIN_SECONDS, "lt": max([since, *began]) + _DAY_SECONDS}
    given: Any = {"created": created, "limit": 100, "expand": ["data.latest_charge"]}
    known = {each for each in (payment and payment.payment_intent_id, *intent_ids) if each}
    try:
        listed = stack.stripe.v1.payment_intents.list(given, _ONCE).auto_paging_iter()
        of_day = _in_time(listed, "Stripe's list of the order's day", omitted)
        known |= {each.id for each in of_day if order_id in orders_named_by(each)}
        found = filter(None, [_intent_facts(stack.stripe, each) for each in known])
        return replace(facts, has_answered=True, intents=sorted(found, key=lambda each: each.intent.created))
    except stripe.StripeError as error:
        return replace(facts, failure=classify(error))


def _in_time[T](found: Iterable[T], what: str, omitted: list[str]) -> Iterator[T]:
    """What is read in time: CloudWatch reads a log page by page, also those that hold nothing of the order."""
    ends_at = time.monotonic() + READ_SECONDS
    for each in found:
        if time.monotonic() > ends_at:
            omitted.append(f"{what} was not read to its end: it takes more than {READ_SECONDS} s")
            return
        yield each


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
